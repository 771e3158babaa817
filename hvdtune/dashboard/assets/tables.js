// Tables, see blocks.grid: what fits is shown, and what is not shown is told and can be.
(function () {
  "use strict";

  const MOST_OF_END = 12; // letters of a name's end that are shown where it is cut

  // Columns of the greatest `context.aside` make room first, from the right; those of 0 last, and
  // the first never.
  function columns_that_fit(columns, width) {
    const kept = columns.map((column) => column.getColDef());
    const total = () => kept.reduce((sum, each) => sum + (each.minWidth || 0), 0);
    const aside = (each) => (each.context && each.context.aside) || 0;
    while (kept.length > 1 && total() > width) {
      const most = Math.max(...kept.slice(1).map(aside));
      kept.splice(kept.findLastIndex((each, k) => k > 0 && aside(each) === most), 1);
    }
    return kept.map((each) => each.field);
  }

  function fit(api, button) {
    const table = document.getElementById(button.dataset.more);
    if (!table || !table.clientWidth) return;
    const columns = api.getColumns() || [], all = columns.map((column) => column.getColId());
    const fitting = columns_that_fit(columns, table.clientWidth - 4);
    const shown = button.dataset.all ? all : fitting;
    api.setColumnsVisible(shown, true);
    api.setColumnsVisible(all.filter((name) => !shown.includes(name)), false);
    api.sizeColumnsToFit();
    const hidden = all.length - fitting.length;
    button.hidden = !hidden;
    button.textContent = button.dataset.all
      ? "Show what fits" : `Show ${hidden} more ${hidden === 1 ? "column" : "columns"}`;
  }

  // A text that is cut in its middle where it does not fit: names of one program often begin alike,
  // and end alike. All of it is in the page, so that it is copied, searched and read aloud whole.
  const measure = document.createElement("canvas").getContext("2d");
  const cells = (window.dashAgGridComponentFunctions = window.dashAgGridComponentFunctions || {});
  cells.HvdtuneName = function (props) {
    if (props.value === null || props.value === undefined) return null;
    const text = String(props.value), letters = [...text], make = window.React.createElement;
    const at = letters.length - Math.min(MOST_OF_END, letters.length >> 1);
    const end = letters.slice(at).join("");
    measure.font = `13px ${getComputedStyle(document.body).fontFamily}`; // see --ag-font-size
    const width = Math.ceil(measure.measureText(end).width) + 1;
    const title = props.colDef.tooltipField ? undefined : text;
    const style = { maxWidth: `calc(100% - ${width}px)` };
    return make("span", { className: "cut", title },
      make("span", { style }, letters.slice(0, at).join("")), make("span", null, end));
  };

  const known = new WeakSet();
  function prepare(button) {
    if (known.has(button) || !window.dash_ag_grid) return;
    known.add(button);
    window.dash_ag_grid.getApiAsync(button.dataset.more).then((api) => {
      const again = () => { if (button.isConnected && !api.isDestroyed()) fit(api, button); };
      button.addEventListener("click", () => {
        button.dataset.all = button.dataset.all ? "" : "1";
        again();
      });
      new ResizeObserver(again).observe(document.getElementById(button.dataset.more));
      again();
    });
  }

  new MutationObserver(() => document.querySelectorAll("[data-more]").forEach(prepare))
    .observe(document.documentElement, { childList: true, subtree: true });

  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-table]");
    if (!button) return;
    const table = window.dash_ag_grid.getApi(button.dataset.table);
    table.exportDataAsCsv({ fileName: button.dataset.file, allColumns: true });
  });
})();
