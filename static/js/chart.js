// Draws every [data-chart] from the JSON block it names, and closes the table that stands open where
// nothing draws. The numbers shown are the server's texts; values are only used to draw. Redrawn when
// the theme changes, as a canvas knows no style sheet.
(() => {
  const DARK = { text: "#c8c8c8", grid: "#444", surface: "#262626", strong: "#fff" };
  const LIGHT = { text: "#525252", grid: "#e5e5e5", surface: "#fff", strong: "#171717" };

  // The legend beneath the chart is the page's; both take their colours from the style sheet.
  const colour = (series, index) => getComputedStyle(document.documentElement)
    .getPropertyValue(`--ct-series-${series.name === "Other" ? "other" : index + 1}`).trim();
  const short = (number) => number.toLocaleString("en", { notation: number < 10000 ? "standard" : "compact" });

  function tooltip(data, measure, look) {
    return {
      trigger: "axis",
      renderMode: "richText", // the other mode writes style attributes, which the page's policy refuses
      confine: true,
      axisPointer: { type: "shadow", shadowStyle: { color: look.text, opacity: 0.08 } },
      backgroundColor: look.surface,
      borderColor: look.grid,
      textStyle: { color: look.strong, fontFamily: "Inter" },
      formatter: (points) => {
        const day = points[0].dataIndex;
        const rows = points
          .filter((point) => measure.series[point.seriesIndex].values[day] > 0)
          .reverse()
          .map((point) => `${point.marker} ${point.seriesName}   ${measure.series[point.seriesIndex].texts[day]}`);
        return [`${data.days[day]} · ${measure.unit}`, ...rows, `Total   ${measure.totals[day]}`].join("\n");
      },
    };
  }

  function option(data, measure, look) {
    const text = { color: look.text, fontFamily: "Inter", fontSize: 12 };
    return {
      animation: false,
      grid: { left: 4, right: 8, top: 36, bottom: 4, outerBoundsMode: "same", outerBoundsContain: "axisLabel" },
      tooltip: tooltip(data, measure, look),
      xAxis: { type: "category", data: data.days, axisLabel: { ...text, hideOverlap: true },
        axisTick: { show: false }, axisLine: { lineStyle: { color: look.grid } } },
      yAxis: { type: "value", splitNumber: 4, name: measure.unit, nameTextStyle: { ...text, align: "left" },
         splitLine: { lineStyle: { color: look.grid } },
        axisLabel: { ...text, formatter: (value) => measure.prefix + short(value) } },
      series: measure.series.map((series, index) => ({
        name: series.name,
        type: "bar",
        stack: "day",
        barCategoryGap: "22%",
        itemStyle: { color: colour(series, index), borderColor: look.surface, borderWidth: 0.5 },
        emphasis: { focus: "series" },
        data: series.values.map((value) => (value === "" ? null : Number(value))),
      })),
    };
  }

  function start(box) {
    const data = JSON.parse(document.getElementById(box.dataset.chart).textContent);
    const chart = echarts.init(box);
    const buttons = document.querySelectorAll(`[data-measure-of="${box.dataset.chart}"]`);
    let shown = data.measures[0];

    const draw = () => {
      const dark = document.documentElement.dataset.bsTheme === "dark";
      chart.setOption(option(data, shown, dark ? DARK : LIGHT), true);
    };
    for (const button of buttons) {
      button.addEventListener("click", () => {
        shown = data.measures.find((measure) => measure.key === button.value);
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        draw();
      });
    }
    document.addEventListener("themechange", draw);
    box.closest(".ct-chart-card").querySelector(".ct-table").open = false;
    new ResizeObserver(() => chart.resize()).observe(box);
    document.fonts.ready.then(draw);
  }

  for (const box of document.querySelectorAll("[data-chart]")) start(box);
})();
