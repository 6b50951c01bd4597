/* Loops of the table as somebody writes them in C: arguments and results are arrays in the order of
   the leaves of the JAX program. */
#include <math.h>
#include <string.h>

void logistic_map_values(const double *x, double *out) {
  double y = *x;
  for (int i = 0; i < 1000000; i++)
    y = 2.9 * y * (1 - y);
  *out = y;
}

void long_rotations_values(const double *start, const double *steps, double *end, double *corners) {
  double c[9];
  memcpy(c, start, sizeof c);
  for (int t = 0; t < 20000; t++, steps += 9) {
    double new[9];
    corners[t] = c[0];
    for (int i = 0; i < 3; i++)
      for (int j = 0; j < 3; j++) {
        double sum = 0;
        for (int k = 0; k < 3; k++)
          sum += ((i == k) + steps[3 * i + k]) * c[3 * k + j];
        new[3 * i + j] = sum;
      }
    memcpy(c, new, sizeof c);
  }
  memcpy(end, c, sizeof c);
}
