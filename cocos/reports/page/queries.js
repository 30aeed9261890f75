// Which queries: a map and a table of the same selection, and a drawer of one query.
const queries = read("queries-data");
if (queries) {
  const FIRST = 50,
    REACH = 12,
    DOT = 2,
    STEP = 0.05;
  const COLUMNS = {
    contributing: ["contributing", (q) => q.contributing, (v) => v],
    effective: ["effective number", (q) => q.effective, (v) => v.toPrecision(3)],
    hardest: ["push on the heaviest", (q) => q.hardest, percent],
    push: ["push", (q) => q.push, (v) => v.toPrecision(3)],
    rank: ["rank of the positive", (q) => q.rank, (v) => v],
    row: ["row", (q) => q.row, (v) => v],
  };
  const KINDS = {
    all: ["all queries", () => true],
    idle: ["idle", (q) => q.idle],
    outranked: ["positive not first", (q) => q.rank > 1],
    one: ["one negative has half of the push", (q) => q.hardest >= 0.5],
  };
  const box = document.getElementById("explorer");
  const counted = (q) => (q.contributing === null ? "–" : q.contributing);
  const lookOf = (side, row) => queries.rows[queries.rows.length > 1 ? side : 0][row] ?? {};
  const nameOf = (side, row) => lookOf(side, row).text || `row ${row}`;
  const pictureOf = (side, row, size) => {
    const source = lookOf(side, row).image ?? "";
    return source.startsWith("data:image/") ? make("img", { src: source, alt: "", width: size, height: size }) : "";
  };

  // State: the direction, the order, what is filtered, and the query that is open.
  const names = queries.directions.map((each) => each.name);
  let side,
    order,
    boxes,
    selected,
    open = null,
    shown = FIRST,
    opener = null;
  const chosen = {
    sort: state.get("sort") in COLUMNS ? state.get("sort") : "hardest",
    up: state.get("up") === "1",
    kind: state.get("kind") in KINDS ? state.get("kind") : "all",
    text: state.get("text") ?? "",
  };
  boxes = (state.get("brush") ?? "")
    .split(";")
    .map((each) => each.split(",").map(Number))
    .filter((each) => each.length === 4 && each.every(Number.isFinite));

  const choice = (label, options, value, change) => {
    const made = make(
      "select",
      { value },
      ...Object.entries(options).map(([key, word]) =>
        make("option", { value: key, textContent: word, selected: key === value }),
      ),
    );
    made.addEventListener("change", () => change(made.value));
    return make("label", {}, label + " ", made);
  };
  const find = make("input", { type: "search", value: chosen.text, size: 14 });
  const told = make("output"),
    clear = make("button", { type: "button", textContent: "clear", className: "clear" });
  const sorting = choice(
    "sorted by",
    Object.fromEntries(Object.entries(COLUMNS).map(([key, [word]]) => [key, word])),
    chosen.sort,
    (key) => sort(key, false),
  );
  const kinds = choice(
    "show",
    Object.fromEntries(Object.entries(KINDS).map(([key, [word]]) => [key, word])),
    chosen.kind,
    (key) => {
      chosen.kind = key;
      keep("kind", key === "all" ? "" : key);
      filter();
    },
  );
  const turn = make("button", { type: "button", "aria-label": "reverse the order", textContent: "↑↓" });
  turn.addEventListener("click", () => sort(chosen.sort, !chosen.up));
  const canvas = make("canvas", {
      tabIndex: 0,
      role: "application",
      "aria-label":
        "Map. The arrow keys move a rectangle that selects queries, with Shift they change its size, " +
        "Enter opens the query nearest to its middle, Escape clears it",
    }),
    peek = make("div", { className: "peek", hidden: true });
  const legend = make("figcaption");
  const map = make(
    "figure",
    { className: "map", role: "group", "aria-label": "Map of the queries; the table beside it lists the same ones" },
    canvas,
    peek,
    legend,
  );
  const body = make("tbody"),
    head = make("tr");
  const more = make("button", { type: "button", textContent: "more" });
  const table = make(
    "div",
    { className: "scroll list", role: "region", tabIndex: 0, "aria-label": "Queries of the selection" },
    make("table", { className: "numbers" }, make("thead", {}, head), body),
    more,
  );
  const drawer = make("dialog", { className: "drawer" });
  const direction =
    names.length > 1
      ? choice(
          "direction",
          Object.fromEntries(names.map((name) => [name, name])),
          state.get("direction") ?? names[0],
          (name) => {
            keep("direction", name);
            keep("query", "");
            close();
            start(name);
          },
        )
      : "";
  const note = make("p", { className: "notes" });
  box.append(
    make("p", { className: "controls" }, direction, kinds, make("label", {}, "with the text ", find), sorting, turn),
    make("p", { className: "filtered", role: "status" }, told, " ", clear),
    make("div", { className: "both" }, map, table),
    note,
    drawer,
  );
  box.hidden = false;

  // The map: two layers, of all points and of the selected ones, so that a brush draws only what it selects.
  const paint = canvas.getContext("2d"),
    quiet = document.createElement("canvas"),
    loud = document.createElement("canvas");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let at = [],
    width = 0,
    height = 0,
    drag = null,
    waiting = 0,
    colours = [];
  const measure = () => {
    const ratio = Math.min(devicePixelRatio || 1, 2);
    width = Math.max(map.clientWidth, 1);
    height = Math.round(Math.min(width, 420));
    [canvas, quiet, loud].forEach((each) => {
      each.width = width * ratio;
      each.height = height * ratio;
    });
    canvas.style.height = `${height}px`;
    [paint, quiet.getContext("2d"), loud.getContext("2d")].forEach((each) =>
      each.setTransform(ratio, 0, 0, ratio, 0, 0),
    );
    const xs = side.queries.map((q) => q.x),
      ys = side.queries.map((q) => q.y);
    const [left, right] = bounds(xs),
      [low, high] = bounds(ys);
    const across = right - left || 1,
      along = high - low || 1;
    at = {
      x: (v) => 8 + ((v - left) / across) * (width - 16),
      y: (v) => height - 8 - ((v - low) / along) * (height - 16),
      left: (p) => left + ((p - 8) / (width - 16)) * across,
      low: (p) => low + ((height - 8 - p) / (height - 16)) * along,
    };
    at.points = side.queries.map((q) => [at.x(q.x), at.y(q.y)]);
  };
  const bounds = (values) => values.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, -Infinity]);
  const dots = (layer, some, strength) => {
    const buckets = new Map();
    some.forEach((place) => {
      const colour = colours[place];
      (buckets.get(colour) ?? buckets.set(colour, []).get(colour)).push(at.points[place]);
    });
    layer.globalAlpha = strength;
    buckets.forEach((points, colour) => {
      layer.fillStyle = colour;
      points.forEach(([x, y]) => layer.fillRect(x - DOT, y - DOT, 2 * DOT, 2 * DOT));
    });
    layer.globalAlpha = 1;
  };
  const layers = () => {
    const ramp = ["#440154", "#3b528b", "#21918c", "#5ec962", "#d8c51c"];
    const shades = dark.matches ? ["#7b6fb0", "#6f9bd8", "#4fc3b5", "#a5e075", "#fde725"] : ramp.reverse();
    const number = order.length;
    colours = new Array(number);
    order.forEach((place, rank) => {
      const above = chosen.up ? rank : number - 1 - rank;
      colours[place] = shades[Math.min(shades.length - 1, Math.floor((above / number) * shades.length))];
    });
    legend.replaceChildren(
      "first two principal components, distances are approximate; ",
      make("span", { className: "key", style: { background: shades[0] } }),
      "lowest fifth by " + COLUMNS[chosen.sort][0] + ", ",
      make("span", { className: "key", style: { background: shades.at(-1) } }),
      "highest",
    );
    [
      [quiet, 0.15],
      [loud, 0.85],
    ].forEach(([layer, strength]) => {
      const on = layer.getContext("2d");
      on.clearRect(0, 0, width, height);
      dots(on, order, strength);
    });
  };
  const draw = () => {
    const whole = selected.length === order.length;
    paint.clearRect(0, 0, width, height);
    paint.drawImage(whole ? loud : quiet, 0, 0, width, height);
    if (!whole) {
      dots(paint, selected, 0.9);
    }
    const ink = getComputedStyle(box).color;
    paint.strokeStyle = ink;
    boxes.forEach(([a, b, c, d]) => paint.strokeRect(at.x(a), at.y(d), at.x(c) - at.x(a), at.y(b) - at.y(d)));
    if (open !== null) {
      const [x, y] = at.points[open];
      paint.lineWidth = 2;
      paint.beginPath();
      paint.arc(x, y, 7, 0, 2 * Math.PI);
      paint.stroke();
      paint.lineWidth = 1;
    }
  };

  // The selection: queries of a kind, with a text, in a rectangle.
  const sort = (key, up) => {
    Object.assign(chosen, { sort: key, up });
    keep("sort", key === "hardest" ? "" : key);
    keep("up", up ? "1" : "");
    sorting.lastElementChild.value = key;
    rank();
    layers();
    filter();
  };
  const rank = () => {
    const value = COLUMNS[chosen.sort][1],
      sign = chosen.up ? 1 : -1;
    const values = side.queries.map((q) => value(q) ?? (chosen.up ? Infinity : -Infinity));
    order = side.queries
      .map((_, place) => place)
      .sort((a, b) => (values[a] === values[b] ? a - b : sign * (values[a] - values[b])));
  };
  const filter = () => {
    const test = KINDS[chosen.kind][1],
      asked = chosen.text.toLowerCase();
    selected = order.filter((place) => {
      const q = side.queries[place];
      return (
        test(q) &&
        (!asked || nameOf(side.asks, q.row).toLowerCase().includes(asked)) &&
        (!boxes.length || boxes.some(([a, b, c, d]) => q.x >= a && q.x <= c && q.y >= b && q.y <= d))
      );
    });
    const filtered = chosen.kind !== "all" || asked || boxes.length;
    const number = (n) => n.toLocaleString("en");
    told.textContent = filtered
      ? `${number(selected.length)} of ${number(order.length)} ·`
      : `${number(order.length)} queries`;
    clear.hidden = !filtered;
    shown = FIRST;
    list();
    draw();
  };
  const list = () => {
    head.replaceChildren(
      make("th", { scope: "col", textContent: "query" }),
      ...Object.entries(COLUMNS)
        .slice(0, 5)
        .map(([key, [word]]) => {
          const active = key === chosen.sort;
          const button = make("button", {
            type: "button",
            textContent: word + (active ? (chosen.up ? " ↑" : " ↓") : ""),
          });
          button.addEventListener("click", () => sort(key, active && !chosen.up));
          return make(
            "th",
            { scope: "col", "aria-sort": active ? (chosen.up ? "ascending" : "descending") : "none" },
            button,
          );
        }),
    );
    body.replaceChildren(
      ...selected.slice(0, shown).map((place) => {
        const q = side.queries[place];
        const button = make(
          "button",
          { type: "button", className: "name", title: "open this query" },
          pictureOf(side.asks, q.row, 24),
          nameOf(side.asks, q.row),
        );
        button.addEventListener("click", () => show(place, button));
        return make(
          "tr",
          { dataset: { place } },
          make("th", { scope: "row" }, button),
          ...Object.values(COLUMNS)
            .slice(0, 5)
            .map(([word, value, text]) => {
              const v = value(q);
              return make("td", { dataset: { name: word }, textContent: v === null ? "–" : text(v) });
            }),
        );
      }),
    );
    more.hidden = selected.length <= shown;
    mark();
  };
  const mark = () =>
    [...body.children].forEach((row) => row.classList.toggle("current", Number(row.dataset.place) === open));
  const keepBoxes = () =>
    keep("brush", boxes.map((each) => each.map((v) => Number(v.toPrecision(4))).join(",")).join(";"));
  const reset = () => {
    boxes = [];
    chosen.kind = "all";
    kinds.lastElementChild.value = "all";
    chosen.text = find.value = "";
    ["brush", "kind", "text"].forEach((name) => keep(name, ""));
    filter();
  };

  // The drawer: what pulls the query, and what pushes it.
  const bar = (part) => {
    const inside = make("span", {
      className: part < 0 ? "pull" : "push",
      style: { width: `${50 * Math.min(1, Math.abs(part))}%` },
    });
    return make("span", { className: "bar", "aria-hidden": "true" }, inside);
  };
  const line = (name, picture, part, score) =>
    make(
      "li",
      {},
      picture,
      make("span", { className: "name", textContent: name }),
      make("span", {
        className: "value",
        textContent:
          `${part < 0 ? "pull" : "push"} ${percent(Math.abs(part))}` +
          (score === null ? "" : `, score ${score.toFixed(3)}`),
      }),
      bar(part),
    );
  const show = (place, from) => {
    const q = side.queries[place],
      text = nameOf(side.asks, q.row);
    if (open === null) {
      opener = from;
    }
    open = place;
    keep("query", q.row);
    const step = (word, by) => {
      const made = make("button", { type: "button", textContent: word, "aria-keyshortcuts": by > 0 ? "j" : "k" });
      made.addEventListener("click", () => move(by));
      return made;
    };
    const shut = make("button", { type: "button", textContent: "close", "aria-keyshortcuts": "Escape" });
    shut.addEventListener("click", close);
    const facts = [
      `row ${q.row}`,
      `${counted(q)} of ${q.negatives} negatives contribute (eps = ${side.eps})`,
      q.effective === null ? "" : `effective number ${q.effective.toPrecision(3)}`,
      q.rank === null ? "" : `rank of the positive ${q.rank}`,
    ]
      .filter(Boolean)
      .join(" · ");
    const candidates = q.top
      .map(([row, part, score]) => line(nameOf(side.ranked, row), pictureOf(side.ranked, row, 48), part, score));
    const others = q.negatives - q.top.length;
    if (others > 0) {
      candidates.push(line(`the other ${others} negatives`, "", q.rest, null));
    }
    drawer.replaceChildren(
      make("p", { className: "controls" }, step("previous", -1), step("next", 1), shut),
      make(
        "h3",
        { id: "drawer-title", tabIndex: -1 },
        pictureOf(side.asks, q.row, 64),
        make("span", { textContent: text }),
      ),
      make("p", { className: "notes", textContent: facts }),
      make("h4", { textContent: q.positives.length === 1 ? "Its positive" : "Its positives" }),
      make(
        "ul",
        { className: "bars positives" },
        ...q.positives.map(([row, part, score]) =>
          line(nameOf(side.ranked, row), pictureOf(side.ranked, row, 48), -part, score),
        ),
      ),
      make("h4", { textContent: "Its negatives, the largest push first" }),
      make("ul", { className: "bars negatives" }, ...candidates),
    );
    drawer.setAttribute("aria-labelledby", "drawer-title");
    if (!drawer.open) {
      if (phone.matches) {
        drawer.showModal();
      } else {
        drawer.show();
      }
    }
    drawer.scrollTop = 0;
    drawer.querySelector("h3").focus({ preventScroll: true });
    mark();
    draw();
  };
  const close = () => {
    if (open === null) {
      return;
    }
    if (drawer.open) {
      drawer.close();
    }
    const back = body.querySelector(".current button") ?? opener;
    open = null;
    keep("query", "");
    mark();
    draw();
    back?.focus?.({ preventScroll: true });
  };
  const move = (by) => {
    const among = selected.includes(open) ? selected : order;
    const next = among[open === null ? 0 : among.indexOf(open) + by];
    if (next !== undefined) {
      show(next, null);
    }
  };

  // Hands: hover peeks, a click opens, a drag filters, Shift adds, Escape takes back.
  const place = (event) => {
    const frame = canvas.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  };
  const nearest = ([x, y], reach = REACH) => {
    let best = null,
      far = reach ** 2;
    selected.forEach((each) => {
      const apart = (at.points[each][0] - x) ** 2 + (at.points[each][1] - y) ** 2;
      if (apart < far) {
        [best, far] = [each, apart];
      }
    });
    return best;
  };
  const later = (work) => {
    if (waiting) {
      cancelAnimationFrame(waiting);
    }
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      work();
    });
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) {
      return;
    }
    drag = { from: place(event), kept: event.shiftKey ? boxes : [], moved: false };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    const now = place(event);
    if (!drag) {
      later(() => {
        const found = nearest(now);
        peek.hidden = found === null;
        if (found === null) {
          return;
        }
        const q = side.queries[found];
        peek.replaceChildren(
          pictureOf(side.asks, q.row, 48),
          make("span", { textContent: nameOf(side.asks, q.row) }),
          make("small", { textContent: `${counted(q)} contribute` }),
        );
        Object.assign(peek.style, {
          left: `${Math.min(now[0] + 12, Math.max(0, width - 200))}px`,
          top: `${now[1] + 12}px`,
        });
      });
      return;
    }
    drag.moved ||= Math.hypot(now[0] - drag.from[0], now[1] - drag.from[1]) > 4;
    if (!drag.moved) {
      return;
    }
    peek.hidden = true;
    const [x, y] = [[drag.from[0], now[0]].sort((a, b) => a - b), [drag.from[1], now[1]].sort((a, b) => a - b)];
    const one = [at.left(x[0]), at.low(y[1]), at.left(x[1]), at.low(y[0])].map((v) => Number(v.toPrecision(4)));
    boxes = [...drag.kept, one];
    later(filter);
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!drag) {
      return;
    }
    const moved = drag.moved;
    drag = null;
    if (moved) {
      keepBoxes();
      return;
    }
    const found = nearest(place(event));
    if (found !== null) {
      show(found, null);
    }
  });
  canvas.addEventListener("keydown", (event) => {
    const arrows = { ArrowLeft: [-STEP, 0], ArrowRight: [STEP, 0], ArrowUp: [0, STEP], ArrowDown: [0, -STEP] };
    const [a, b, c, d] = boxes.at(-1) ?? [-5 * STEP, -5 * STEP, 5 * STEP, 5 * STEP];
    if (event.key === "Enter") {
      const found = nearest([at.x((a + c) / 2), at.y((b + d) / 2)], Infinity);
      if (found !== null) {
        show(found, canvas);
      }
    } else if (event.key in arrows) {
      event.preventDefault();
      const [x, y] = boxes.length ? arrows[event.key] : [0, 0];
      const one = event.shiftKey ? [a, b, Math.max(a, c + x), Math.max(b, d + y)] : [a + x, b + y, c + x, d + y];
      boxes = [...boxes.slice(0, -1), one.map((v) => Number(v.toPrecision(4)))];
      keepBoxes();
      later(filter);
    }
  });
  drawer.addEventListener("close", close);
  canvas.addEventListener("pointercancel", () => {
    drag = null;
  });
  canvas.addEventListener("pointerleave", () => {
    peek.hidden = true;
  });
  clear.addEventListener("click", () => {
    reset();
    table.focus();
  });
  more.addEventListener("click", () => {
    shown += 2 * FIRST;
    list();
  });
  find.addEventListener("input", () => {
    chosen.text = find.value;
    keep("text", find.value);
    later(filter);
  });
  addEventListener("keydown", (event) => {
    if (event.key === "Escape") {
      if (open !== null) {
        close();
      } else if (!clear.hidden) {
        reset();
      }
      return;
    }
    if (typing(event)) {
      return;
    }
    const inside = open !== null || box.contains(document.activeElement);
    if (inside && (event.key === "j" || event.key === "k")) {
      move(event.key === "j" ? 1 : -1);
      event.preventDefault();
    }
  });
  dark.addEventListener("change", () => {
    layers();
    draw();
  });
  new ResizeObserver(() => {
    if (map.clientWidth && map.clientWidth !== width) {
      measure();
      layers();
      draw();
    }
  }).observe(map);

  const start = (name) => {
    side = queries.directions.find((each) => each.name === name) ?? queries.directions[0];
    const said = `Every number is of the first batch that contains the query; eps is ${side.eps} here.`;
    note.textContent = side.note ? `${side.note}. ${said}` : said;
    measure();
    rank();
    layers();
    filter();
    const asked = side.queries.findIndex((q) => String(q.row) === state.get("query"));
    if (state.has("query") && asked >= 0) {
      show(asked, null);
    }
  };
  start(state.get("direction"));
}
if (state.has("section")) {
  document.getElementById(state.get("section"))?.scrollIntoView();
}
