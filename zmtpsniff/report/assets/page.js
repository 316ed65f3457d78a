"use strict";
// What moves in the page: charts, tables that sort and filter, light and dark. Text is put in as text, never as markup:
// what goes into tooltips, which are markup, passes through safe().
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const root = document.documentElement;
  const NARROW = 640;
  const compact = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 3 });
  const whole = new Intl.NumberFormat("en");

  const safe = (text) => String(text).replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
  const lines = (...parts) => parts.filter(Boolean).map(safe).join("<br>");
  const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  /** Nanoseconds as a span of time with three digits. */
  function span(ns) {
    const [size, unit] = [[6e10, "min"], [1e9, "s"], [1e6, "ms"], [1e3, "us"], [1, "ns"]].find(([each]) => ns >= each)
      || [1, "ns"];
    return `${Number((ns / size).toPrecision(3))} ${unit}`;
  }

  // ---------------------------------------------------------------- colours

  const probe = document.createElement("span");
  probe.hidden = true;
  document.body.append(probe);
  let palette = {};

  function readPalette() {
    const names = ["text", "dim", "grid", "back", "box", "error", "warning", "note", "rest", "heat-0", "heat-1"];
    for (let place = 0; place < 8; place += 1) names.push(`color-${place}`);
    palette = Object.fromEntries(names.map((name) => {
      probe.style.color = `var(--${name})`;
      return [name, getComputedStyle(probe).color];
    }));
    palette.colors = [0, 1, 2, 3, 4, 5, 6, 7].map((place) => palette[`color-${place}`]);
    palette.heat = [palette["heat-0"], palette["heat-1"]].map((each) => each.match(/[\d.]+/g).map(Number));
  }

  /** The colour of a share of the most, from 0 to 1. */
  const heat = (share) => `rgb(${[0, 1, 2].map((at) => Math.round(
    palette.heat[0][at] + (palette.heat[1][at] - palette.heat[0][at]) * share)).join(",")})`;

  // ---------------------------------------------------------------- what charts have in common

  const label = () => ({ color: palette.text, fontSize: 11 });
  const quiet = () => ({ lineStyle: { color: palette.grid } });

  function base() {
    return {
      animation: false, useUTC: true, color: palette.colors, aria: { enabled: true },
      textStyle: { fontFamily: "system-ui, sans-serif", color: palette.text },
      tooltip: {
        confine: true, backgroundColor: palette.box, borderColor: palette.grid,
        textStyle: { color: palette.text, fontSize: 12 }, extraCssText: "max-width: 24rem; white-space: normal;",
      },
    };
  }

  const timeAxis = (of, extra) => ({
    type: "time", min: of.start, max: of.start + Math.max(of.count, 1) * of.interval, axisLabel: { ...label(),
      hideOverlap: true }, axisLine: quiet(), axisTick: quiet(), splitLine: { show: false }, ...extra,
  });
  const valueAxis = (name, extra) => ({
    type: "value", name, nameTextStyle: { ...label(), align: "left" }, axisLabel: { ...label(),
      formatter: (value) => compact.format(value) }, splitLine: quiet(), ...extra,
  });
  const legend = (extra) => ({
    type: "scroll", top: 0, left: 0, right: 0, textStyle: { ...label(), width: 200, overflow: "truncate" },
    inactiveColor: palette.rest, pageTextStyle: label(), pageIconColor: palette.text, pageIconInactiveColor: palette.rest,
    ...extra,
  });
  const when = (of, place) => new Date(of.start + place * of.interval).toISOString().slice(0, 23).replace("T", " ");

  /** One value for each interval, without gaps. */
  function filled(of, rows, column) {
    const values = new Array(of.count).fill(0);
    for (const row of rows) values[row[0]] += row[column];
    return values;
  }
  /** Steps: each value holds for its interval. */
  const steps = (of, values) => [...values, values.at(-1)].map((value, place) => [of.start + place * of.interval, value]);

  // ---------------------------------------------------------------- a chart each

  const charts = {
    way(node) {
      const of = data.ways.ways[Number(node.dataset.place)];
      const colors = { request: palette["color-0"], reply: palette["color-2"], slowest: palette.warning,
        ended: palette.error };
      const names = of.rows.map((row) => row[0]);
      const side = Math.min(20 + 6.5 * Math.max(...names.map((name) => name.length)),
        node.clientWidth < NARROW ? 135 : 260);
      return {
        height: 45 + 22 * of.rows.length,
        option: {
          ...base(),
          tooltip: { ...base().tooltip, formatter: ({ dataIndex }) => {
            const [name, from, took, kind, place, joint] = of.rows[dataIndex];
            return lines(`${name} has the message of ${place}`, `from ${span(from)} on${took ? `, for ${
              kind === "ended" ? "good" : span(took)}` : ""}`, joint);
          } },
          grid: { left: side, right: 70, top: 5, bottom: 28 },
          xAxis: { type: "value", min: 0, max: of.whole, axisLabel: { ...label(), formatter: span, hideOverlap: true },
            splitLine: quiet() },
          yAxis: { type: "category", inverse: true, data: names.map((_, place) => place), axisTick: { show: false },
            axisLine: quiet(), axisLabel: { ...label(), interval: 0, width: side - 12, overflow: "truncate",
              formatter: (place) => `${of.rows[place][3] === "reply" ? "◀" : "▶"} ${names[place]}` } },
          series: [
            { type: "bar", stack: "way", barWidth: 11, silent: true, itemStyle: { opacity: 0 },
              data: of.rows.map((row) => row[1]) },
            { type: "bar", stack: "way", barWidth: 11, barMinHeight: 2,
              data: of.rows.map((row) => ({ value: row[2], itemStyle: { color: colors[row[3]] } })),
              label: { show: true, position: "right", ...label(),
                formatter: ({ dataIndex, value }) => (of.rows[dataIndex][3] === "ended" ? "ended" : value ? span(value) : "") } },
          ],
        },
      };
    },

    topology(node) {
      const of = data.topology;
      const width = node.clientWidth;
      const last = Math.max(1, ...of.nodes.map(([, level]) => level));
      const columns = Array.from({ length: last + 1 }, () => []);
      of.nodes.forEach(([, level], place) => columns[level].push(place));
      const room = (level) => Math.min(30 + 6.5 * Math.max(0, ...columns[level].map((place) => of.nodes[place][0].length)),
        width < NARROW ? 135 : 260);
      const [left, right] = [room(0), room(last)];
      const between = (width - left - right) / last;
      const nodes = of.nodes.map(([name, level, isService], place) => {
        const position = level === 0 ? "left" : level === last ? "right" : "top";
        return {
          name: String(place), shown: name, symbolSize: 9,
          value: [level / last, (columns[level].indexOf(place) + 0.5) / columns[level].length],
          itemStyle: { color: isService ? palette["color-3"] : palette["color-0"] },
          label: { show: true, position, color: palette.text, fontSize: 11, overflow: "truncate",
            width: position === "top" ? Math.max(between - 10, 40) : (level ? right : left) - 16,
            formatter: () => cut(name, 60) },
        };
      });
      const most = Math.max(1, ...of.links.map((link) => link[2] + link[3]));
      const links = of.links.map((link) => {
        const share = Math.log10(1 + link[2] + link[3]) / Math.log10(1 + most);
        return {
          source: String(link[0]), target: String(link[1]), link,
          lineStyle: { width: 1 + 7 * share, color: palette[link[6] === "note" ? "" : link[6]] || palette.rest,
            opacity: 0.75, type: link[2] + link[3] ? "solid" : "dashed", curveness: 0.03 },
        };
      });
      return {
        height: 30 + (last > 1 ? 34 : 22) * Math.max(...columns.map((column) => column.length), 3),
        option: {
          ...base(),
          tooltip: { ...base().tooltip, formatter: ({ dataType, data: of_ }) => (dataType === "edge"
            ? lines(`${of.nodes[of_.link[0]][0]} → ${of.nodes[of_.link[1]][0]}`, of_.link[8],
              `${whole.format(of_.link[2])} messages to the server, ${whole.format(of_.link[3])} from it`,
              `${whole.format(of_.link[4])} octets, ${whole.format(of_.link[5])} connections`, of_.link[7])
            : lines(of_.shown)) },
          grid: { left, right, top: 5, bottom: 5 },
          xAxis: { show: false, min: 0, max: 1 }, yAxis: { show: false, min: 0, max: 1, inverse: true },
          series: [{
            type: "graph", coordinateSystem: "cartesian2d", data: nodes, links, symbol: "circle",
            emphasis: { focus: "adjacency", lineStyle: { opacity: 1 } }, blur: { lineStyle: { opacity: 0.08 } },
          }],
        },
      };
    },

    rates(node) {
      const of = data.rates;
      const mode = tools(node, "rates", { messages: "Messages", octets: "Octets" });
      const column = mode === "octets" ? 2 : 1;
      const per = 1000 / of.interval;
      const shown = of.services.slice(0, of.stacked);
      const rest = filled(of, of.all, column);
      const series = shown.map(({ name, rows }) => {
        const values = filled(of, rows, column);
        values.forEach((value, place) => { rest[place] -= value; });
        return [name, values];
      });
      if (rest.some((value) => value > 0)) series.push(["others", rest]);
      return timeChart(of, series, `${mode} a second`, per);
    },

    service(node) {
      const of = data.rates;
      const { rows } = of.services[Number(node.dataset.place)];
      const per = 1000 / of.interval;
      const chart = timeChart(of, [["messages", filled(of, rows, 1)]], "messages a second", per);
      chart.height = 130;
      chart.option.legend = undefined;
      chart.option.grid = { ...chart.option.grid, top: 28 };
      return chart;
    },

    versions() {
      const of = data.versions;
      return timeChart(of, of.kinds.map(({ name, rows }) => [name, filled(of, rows, 1)]),
        `connections begun in ${span(of.interval * 1e6)}`, 1);
    },

    replies(node) {
      const of = data.replies;
      const chosen = choice(node, of.services.map(({ name }) => name));
      const { cells, times } = of.services[chosen];
      const found = [];
      for (let at = 0; at < cells.length; at += 3) found.push(cells.slice(at, at + 3));
      const most = Math.max(...found.map((cell) => cell[2]));
      const inStep = new Array(of.steps.length).fill(0);
      const byTime = new Map();
      for (const [place, step, count] of found) {
        inStep[step] += count;
        if (!byTime.has(place)) byTime.set(place, []);
        byTime.get(place).push([step, count]);
      }
      const least = Math.max(of.steps[Math.min(...found.map((cell) => cell[1]))][0], 1);
      const greatest = of.steps[Math.max(...found.map((cell) => cell[1]))][1];
      const narrow = node.clientWidth < NARROW;
      // The ends of an axis have labels beside those of the powers of ten, unless the two would overlap.
      const gap = (end, round) => Math.abs(Math.log10(end) - round(Math.log10(end))) / Math.log10(greatest / least);
      const hasRoom = (end, round) => gap(end, round) < 1e-6 || gap(end, round) > 0.1;
      const logAxis = (grid, extra) => ({
        type: "log", gridIndex: grid, min: least, max: greatest, axisLabel: { ...label(), formatter: span,
          hideOverlap: true, showMinLabel: hasRoom(least, Math.ceil), showMaxLabel: hasRoom(greatest, Math.floor) },
        splitLine: quiet(), axisLine: quiet(), ...extra,
      });
      const quantile = (share) => [...byTime].sort((one, other) => one[0] - other[0]).map(([place, steps_]) => [
        of.start + (place + 0.5) * of.interval, within(steps_, share, of.steps)]);
      const box = (api, from, to, color) => {
        const [left, top] = api.coord(from);
        const [right, bottom] = api.coord(to);
        return { type: "rect", shape: { x: Math.min(left, right), y: Math.min(top, bottom),
          width: Math.max(Math.abs(right - left) - 0.5, 1.5), height: Math.max(Math.abs(bottom - top) - 0.5, 1) },
        style: { fill: color } };
      };
      const below = of.steps.map(([from, to]) => [Math.max(from, least), to]);
      const option = {
        ...base(),
        legend: legend({ data: ["p50", "p95", "p99"] }),
        grid: narrow ? [{ left: 55, right: 15, top: 40, height: 200 }, { left: 55, right: 15, top: 300, height: 120 }]
          : [{ left: 60, right: "33%", top: 40, bottom: 35 }, { left: "73%", right: 15, top: 40, bottom: 35 }],
        xAxis: [timeAxis(of, { gridIndex: 0 }),
          narrow ? logAxis(1) : valueAxis("replies", { gridIndex: 1, minInterval: 1, nameLocation: "middle",
            nameGap: 20 })],
        yAxis: [logAxis(0), narrow ? valueAxis("replies", { gridIndex: 1, minInterval: 1 }) : logAxis(1)],
        series: [
          {
            type: "custom", name: "replies", xAxisIndex: 0, yAxisIndex: 0, data: found, clip: true,
            renderItem: (_, api) => {
              const [place, step] = [api.value(0), api.value(1)];
              return box(api, [of.start + place * of.interval, below[step][0]],
                [of.start + (place + 1) * of.interval, below[step][1]],
                heat(Math.log(1 + api.value(2)) / Math.log(1 + most)));
            },
            encode: { x: -1, y: -1 },
            tooltip: { formatter: ({ value: [place, step, count] }) => lines(when(of, place),
              `${span(of.steps[step][0])} to ${span(of.steps[step][1])}`, `${whole.format(count)} replies`) },
          },
          ...[["p50", 0.5, "color-2"], ["p95", 0.95, "color-1"], ["p99", 0.99, "error"]].map(([name, share, color]) => ({
            type: "line", name, data: quantile(share), symbolSize: 4, showSymbol: byTime.size < 40,
            lineStyle: { width: 1.5, color: palette[color] }, itemStyle: { color: palette[color] }, connectNulls: false,
            tooltip: { formatter: ({ value }) => lines(`${name}: about ${span(value[1])}`) },
          })),
          {
            type: "custom", name: "distribution", xAxisIndex: 1, yAxisIndex: 1, clip: true,
            data: inStep.map((count, step) => [step, count]).filter(([, count]) => count),
            renderItem: (_, api) => {
              const [step, count] = [api.value(0), api.value(1)];
              const ends = [[0, below[step][0]], [count, below[step][1]]];
              return box(api, ...(narrow ? ends.map(([x, y]) => [y, x]) : ends), palette["color-0"]);
            },
            encode: narrow ? { x: -1, y: 1 } : { x: 1, y: -1 },
            tooltip: { formatter: ({ value: [step, count] }) => lines(
              `${span(of.steps[step][0])} to ${span(of.steps[step][1])}`, `${whole.format(count)} replies`) },
          },
        ],
      };
      if (times) {
        const text = `${whole.format(times[0])} replies: p50 ${span(times[2])}, p95 ${span(times[3])}, `
          + `p99 ${span(times[4])}, slowest ${span(times[5])}`;
        toolsOf(node).querySelector("output").textContent = text;
      }
      return { height: narrow ? 450 : 320, option };
    },

    topics(node) {
      return bars(node, data.topics, () => palette["color-2"]);
    },

    problems(node) {
      return bars(node, data.problems, (name) => palette[name.replace(/s$/, "")]);
    },
  };

  function timeChart(of, series, name, per) {
    return {
      height: 260,
      option: {
        ...base(),
        tooltip: { ...base().tooltip, trigger: "axis", order: "valueDesc", formatter: (rows) => lines(
          when(of, rows[0].dataIndex),
          ...rows.filter(({ value }) => value[1]).slice(0, 12).map(({ seriesName, value }) => (
            `${seriesName}: ${compact.format(value[1])}${per === 1 ? "" : "/s"}`))) },
        legend: legend(),
        grid: { left: 50, right: 15, top: 55, bottom: 30 },
        xAxis: timeAxis(of), yAxis: valueAxis(name, { minInterval: per === 1 ? 1 : 0 }),
        series: series.map(([label_, values]) => ({
          type: "line", name: label_, step: "end", stack: "all", symbol: "none", lineStyle: { width: 0.5 },
          areaStyle: { opacity: 0.75 }, itemStyle: label_ === "others" ? { color: palette.rest } : {},
          data: steps(of, values.map((value) => value * per)),
        })),
      },
    };
  }

  function bars(node, of, color) {
    const side = node.clientWidth < NARROW ? 120 : 240;
    const names = Object.keys(of.parts);
    return {
      height: 60 + 22 * of.names.length,
      option: {
        ...base(),
        tooltip: { ...base().tooltip, trigger: "axis", axisPointer: { type: "shadow" }, formatter: (rows) => lines(
          of.names[rows[0].dataIndex], ...rows.map(({ seriesName, value }) => `${whole.format(value)} ${seriesName}`)) },
        legend: names.length > 1 ? legend() : undefined,
        grid: { left: side, right: 30, top: names.length > 1 ? 28 : 8, bottom: 25 },
        xAxis: valueAxis("", { minInterval: 1 }),
        yAxis: { type: "category", inverse: true, data: of.names.map((_, place) => place), axisTick: { show: false },
          axisLine: quiet(), axisLabel: { ...label(), width: side - 15, overflow: "truncate",
            formatter: (place) => of.names[place] } },
        series: names.map((name) => ({ type: "bar", name, stack: "all", barMaxWidth: 16, data: of.parts[name],
          itemStyle: { color: color(name) } })),
      },
    };
  }

  /** The value that a share of replies is within, from how many there are in each step. */
  function within(steps_, share, limits) {
    const sorted = [...steps_].sort((one, other) => one[0] - other[0]);
    let left = share * sorted.reduce((sum, [, count]) => sum + count, 0);
    for (const [step, count] of sorted) {
      if (left <= count) {
        const [from, to] = [Math.max(limits[step][0], 1), limits[step][1]];
        return from * (to / from) ** (left / count);
      }
      left -= count;
    }
    return limits[sorted.at(-1)[0]][1];
  }

  // ---------------------------------------------------------------- controls above charts

  function toolsOf(node) {
    let made = node.querySelector(".tools");
    if (!made) {
      made = document.createElement("div");
      made.className = "tools";
      node.prepend(made);
    }
    return made;
  }

  /** Buttons of which one is pressed; its key. */
  function tools(node, name, texts) {
    const made = toolsOf(node);
    if (!made.childElementCount) {
      for (const [key, text] of Object.entries(texts)) {
        const button = document.createElement("button");
        button.type = "button";
        button.textContent = text;
        button.addEventListener("click", () => { node.dataset.mode = key; draw(node); });
        button.dataset.key = key;
        made.append(button);
      }
      node.dataset.mode = Object.keys(texts)[0];
    }
    for (const button of made.children) button.setAttribute("aria-pressed", String(button.dataset.key === node.dataset.mode));
    return node.dataset.mode;
  }

  /** A list to choose from, and room for words beside it; the place of what is chosen. */
  function choice(node, names) {
    const made = toolsOf(node);
    if (!made.childElementCount) {
      const list = document.createElement("select");
      list.setAttribute("aria-label", "Service");
      names.forEach((name, place) => list.append(new Option(cut(name, 60), String(place))));
      list.addEventListener("change", () => draw(node));
      made.append(list, document.createElement("output"));
    }
    return Number(made.querySelector("select").value);
  }

  // ---------------------------------------------------------------- drawing

  function draw(node) {
    const { height, option } = charts[node.dataset.chart](node);
    let canvas = node.querySelector(".canvas");
    if (!canvas) {
      canvas = document.createElement("div");
      canvas.className = "canvas";
      node.append(canvas);
    }
    canvas.style.height = `${height}px`;
    const drawn = echarts.getInstanceByDom(canvas) || echarts.init(canvas, null, { renderer: "svg" });
    drawn.resize();
    drawn.setOption(option, { notMerge: true });
    node.dataset.drawn = "yes";
  }

  const nodes = [...document.querySelectorAll("[data-chart]")];

  /** Draw again what has been drawn, or all. */
  function drawAgain(all) {
    readPalette();
    for (const node of nodes) if (all || node.dataset.drawn) draw(node);
  }

  readPalette();
  // Many services have a chart each: those that nobody looks at are not drawn.
  const small = nodes.filter((node) => node.classList.contains("small"));
  const watcher = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) if (isIntersecting && !target.dataset.drawn) draw(target);
  }, { rootMargin: "300px" });
  for (const node of small) {
    node.style.minHeight = "130px";
    watcher.observe(node);
  }
  for (const node of nodes) if (!small.includes(node)) draw(node);

  let width = root.clientWidth;
  let waiting = 0;
  window.addEventListener("resize", () => {
    if (root.clientWidth === width) return;
    width = root.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => drawAgain(false), 150);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => drawAgain(false));
  let theme = "";
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme || "";
    root.dataset.theme = "light";
    for (const each of document.querySelectorAll("details")) each.open = true;
    drawAgain(true);
  });
  window.addEventListener("afterprint", () => {
    if (theme) root.dataset.theme = theme;
    else delete root.dataset.theme;
    drawAgain(false);
  });

  const toggle = document.getElementById("theme");
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    const dark = getComputedStyle(root).colorScheme === "dark"
      || (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "light" : "dark";
    drawAgain(false);
  });

  // ---------------------------------------------------------------- tables

  const keyOf = (cell) => (cell.dataset.value === undefined ? cell.textContent.toLowerCase() : Number(cell.dataset.value));
  const compare = (one, other) => (typeof one === "number" && typeof other === "number" ? one - other
    : String(one).localeCompare(String(other)));

  for (const table of document.querySelectorAll("table")) {
    const body = table.tBodies[0];
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const before = head.getAttribute("aria-sort");
        const largest = before ? before === "ascending" : head.classList.contains("number");
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", largest ? "descending" : "ascending");
        const rows = [...body.rows].map((row) => [keyOf(row.cells[column]), row]);
        rows.sort((one, other) => (largest ? compare(other[0], one[0]) : compare(one[0], other[0])));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }
  for (const frame of document.querySelectorAll("[data-filter]")) {
    const made = document.createElement("div");
    const field = document.createElement("input");
    const count = document.createElement("output");
    made.className = "tools";
    field.type = "search";
    field.placeholder = "Filter rows";
    field.setAttribute("aria-label", "Filter rows");
    field.addEventListener("input", () => {
      const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = [...frame.querySelector("tbody").rows];
      let shown = 0;
      for (const row of rows) {
        const text = row.textContent.toLowerCase();
        row.hidden = !wanted.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      count.textContent = wanted.length ? `${shown} of ${rows.length}` : "";
    });
    made.append(field, count);
    frame.before(made);
  }
})();
