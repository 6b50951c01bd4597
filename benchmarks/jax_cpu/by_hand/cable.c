/* Hodgkin and Huxley's cable as somebody writes it in C, with its derivative by hand: states of all
   steps are kept, and each step is gone back through once. */
#include <math.h>
#include <string.h>

enum { SIZE = 16, STEPS = 400, GATES = 3 };
static const double DT = 0.025, AXIAL = 0.5;

typedef struct {
  double v[SIZE], gate[GATES][SIZE];
} State;

static double ratio(double x) { return fabs(x) < 1e-4 ? 1 + x / 2 : x / (1 - exp(-x)); }

static double ratio_slope(double x) {
  if (fabs(x) < 1e-4)
    return 0.5;
  double e = exp(-x), below = 1 - e;
  return (below - x * e) / (below * below);
}

/* Rates of opening and closing, and their derivatives. */
static void rates(double v, double *a, double *b) {
  a[0] = ratio((v + 40) / 10), b[0] = 4 * exp(-(v + 65) / 18);
  a[1] = 0.07 * exp(-(v + 65) / 20), b[1] = 1 / (1 + exp(-(v + 35) / 10));
  a[2] = 0.1 * ratio((v + 55) / 10), b[2] = 0.125 * exp(-(v + 65) / 80);
}

static void slopes(double v, const double *a, const double *b, double *da, double *db) {
  da[0] = ratio_slope((v + 40) / 10) / 10, db[0] = -b[0] / 18;
  da[1] = -a[1] / 20, db[1] = b[1] * (1 - b[1]) / 10;
  da[2] = ratio_slope((v + 55) / 10) / 100, db[2] = -b[2] / 80;
}

/* x of a symmetric tridiagonal system with -AXIAL beside the diagonal. */
static void solve(const double *diagonal, const double *right, double *x) {
  double upper[SIZE], c = 0, d = 0;
  for (int i = 0; i < SIZE; i++) {
    double inverse = 1 / (diagonal[i] + AXIAL * c);
    c = upper[i] = -AXIAL * inverse;
    d = x[i] = (right[i] + AXIAL * d) * inverse;
  }
  for (int i = SIZE - 2; i >= 0; i--)
    x[i] -= upper[i] * x[i + 1];
}

static void step(const double *scale, double given, const State *old, State *new, double *diagonal) {
  double right[SIZE];
  for (int i = 0; i < SIZE; i++) {
    double a[GATES], b[GATES], v = old->v[i];
    rates(v, a, b);
    for (int g = 0; g < GATES; g++) {
      double rest = a[g] / (a[g] + b[g]);
      new->gate[g][i] = rest + (old->gate[g][i] - rest) * exp(-DT * (a[g] + b[g]));
    }
    double m = new->gate[0][i], h = new->gate[1][i], n = new->gate[2][i];
    double sodium = scale[0] * 120 * m * m * m * h, potassium = scale[1] * 36 * n * n * n * n;
    double beside = i == 0 || i == SIZE - 1 ? AXIAL : 2 * AXIAL;
    diagonal[i] = 1 / DT + sodium + potassium + 0.3 * scale[2] + beside;
    right[i] = v / DT + 50 * sodium - 77 * potassium - 0.3 * scale[2] * 54.4;
  }
  right[0] += given;
  solve(diagonal, right, new->v);
}

static void begin(State *state, const double *v, const double *m, const double *h,
                  const double *n) {
  memcpy(state->v, v, sizeof state->v);
  memcpy(state->gate[0], m, sizeof state->v);
  memcpy(state->gate[1], h, sizeof state->v);
  memcpy(state->gate[2], n, sizeof state->v);
}

void neuron_cable_values(const double *scale, const double *v, const double *m, const double *h,
                         const double *n, const double *current, double *out) {
  State state[2];
  double diagonal[SIZE];
  begin(&state[0], v, m, h, n);
  for (int t = 0; t < STEPS; t++) {
    step(scale, current[t], &state[t & 1], &state[1 - (t & 1)], diagonal);
    out[t] = state[1 - (t & 1)].v[SIZE - 1];
  }
}

void neuron_cable_gradients(const double *scale, const double *v, const double *m, const double *h,
                            const double *n, const double *current, double *value,
                            double *gradient) {
  static State states[STEPS + 1];
  static double diagonals[STEPS][SIZE];
  double of_v[SIZE] = {0}, of_gate[GATES][SIZE] = {{0}}, of_scale[3] = {0}, sum = 0;
  begin(&states[0], v, m, h, n);
  for (int t = 0; t < STEPS; t++) {
    step(scale, current[t], &states[t], &states[t + 1], diagonals[t]);
    sum += states[t + 1].v[SIZE - 1] * states[t + 1].v[SIZE - 1];
  }
  for (int t = STEPS - 1; t >= 0; t--) {
    const State *old = &states[t], *new = &states[t + 1];
    double of_right[SIZE];
    of_v[SIZE - 1] += 2 * new->v[SIZE - 1] / STEPS;
    solve(diagonals[t], of_v, of_right);
    for (int i = 0; i < SIZE; i++) {
      double of_diagonal = -of_right[i] * new->v[i], x = old->v[i];
      double m = new->gate[0][i], h = new->gate[1][i], n = new->gate[2][i];
      double sodium = of_diagonal + 50 * of_right[i], potassium = of_diagonal - 77 * of_right[i];
      of_scale[0] += sodium * 120 * m * m * m * h;
      of_scale[1] += potassium * 36 * n * n * n * n;
      of_scale[2] += 0.3 * of_diagonal - 0.3 * 54.4 * of_right[i];
      of_gate[0][i] += sodium * scale[0] * 360 * m * m * h;
      of_gate[1][i] += sodium * scale[0] * 120 * m * m * m;
      of_gate[2][i] += potassium * scale[1] * 144 * n * n * n;
      double a[GATES], b[GATES], da[GATES], db[GATES];
      rates(x, a, b);
      slopes(x, a, b, da, db);
      double back = of_right[i] / DT;
      for (int g = 0; g < GATES; g++) {
        double both = a[g] + b[g], rest = a[g] / both, e = exp(-DT * both), of = of_gate[g][i];
        double of_rest = of * (1 - e);
        double of_both = -DT * e * of * (old->gate[g][i] - rest) - of_rest * rest / both;
        back += (of_rest / both + of_both) * da[g] + of_both * db[g];
        of_gate[g][i] = of * e;
      }
      of_v[i] = back;
    }
  }
  *value = sum / STEPS;
  memcpy(gradient, of_scale, sizeof of_scale);
}
