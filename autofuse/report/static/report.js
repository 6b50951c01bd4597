"use strict";
(() => {
  // Sorting: every column head becomes a button.
  const key = (row, column) => {
    const cell = row.cells[column];
    const number = cell.dataset.v;
    return number ? Number(number) : cell.textContent.trim();
  };
  const compare = (a, b) => {
    if (typeof a === "number" && typeof b === "number") return a - b || 0;
    // Unknown values come after the known ones.
    if (typeof a === "number") return -1;
    if (typeof b === "number") return 1;
    return a.localeCompare(b, "en", { numeric: true });
  };
  const sortBy = (table, column, direction) => {
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row, i) => ({ row, i, key: key(row, column) }));
    const sign = direction === "ascending" ? 1 : -1;
    rows.sort((x, y) => sign * compare(x.key, y.key) || x.i - y.i);
    body.append(...rows.map((r) => r.row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const direction =
          head.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", direction);
        sortBy(table, column, direction);
      });
    });
  }

  // Filtering by workload and device: sections, contents and rows of the summaries.
  const form = document.getElementById("filters");
  if (form) {
    const workload = form.elements.workload;
    const device = form.elements.device;
    const filtered = [...document.querySelectorAll("[data-workload]")];
    const sections = [...document.querySelectorAll("section[data-workload]")];
    const byDevice = [...document.querySelectorAll("[data-only-device]")];
    const apply = () => {
      const words = workload.value.trim().toLowerCase();
      for (const one of filtered) {
        const named = one.dataset.workload.toLowerCase().includes(words);
        one.hidden = !(named && (device.value === "" || one.dataset.device === device.value));
      }
      for (const one of byDevice) {
        const other = device.value !== "" && one.dataset.onlyDevice !== device.value;
        one.hidden = words !== "" || other;
      }
      const shown = sections.filter((one) => !one.hidden).length;
      document.getElementById("shown").textContent = `${shown} of ${sections.length} shown`;
    };
    form.addEventListener("input", apply);
    form.addEventListener("change", apply);
    form.addEventListener("reset", () => setTimeout(apply, 0));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.hidden = false;
    apply();
  }

  // Tooltips: at once, and by touch too; the browser's own are taken out where ours appear.
  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  tip.setAttribute("aria-hidden", "true");
  document.body.append(tip);
  const told = (target) => {
    for (let one = target; one instanceof Element && one.tagName !== "svg"; one = one.parentNode) {
      const title = [...one.children].find((child) => child.tagName === "title");
      if (title) {
        one.dataset.tip = title.textContent;
        title.remove();
      }
      if (one.dataset.tip) return one.dataset.tip;
    }
    return "";
  };
  const show = (event) => {
    const inside = event.target instanceof Element && event.target.closest("svg.af");
    const text = inside ? told(event.target) : "";
    tip.hidden = text === "";
    if (text === "") return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 12, window.innerWidth - box.width - 8);
    const above = event.clientY + box.height + 24 > window.innerHeight;
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${above ? event.clientY - box.height - 12 : event.clientY + 16}px`;
  };
  const hide = () => {
    tip.hidden = true;
  };
  document.addEventListener("pointermove", show, { passive: true });
  document.addEventListener("pointerdown", show, { passive: true });
  document.addEventListener("scroll", hide, { passive: true, capture: true });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });

  // Paper has no clicks: what is folded is printed too.
  let folded = [];
  window.addEventListener("beforeprint", () => {
    folded = [...document.querySelectorAll("details:not([open])")];
    for (const one of folded) one.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const one of folded) one.open = false;
  });
})();
