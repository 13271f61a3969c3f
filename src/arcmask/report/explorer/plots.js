// Small plots over the steps with one line per arm. A click or drag selects a step.

const [WIDTH, HEIGHT, TOP, BOTTOM, LEFT, RIGHT] = [280, 132, 10, 18, 34, 6];
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

const QUANTITIES = [
  { name: "masked", title: "Masked positions", top: 1, format: percent,
    of: (arm, s) => arm.states[s].filter((token) => token === MASKED).length / LENGTH },
  { name: "weight", title: "Mean weight", format: (x) => decimals(x, 3),
    of: (arm, s) => mean([...arm.rows[s].values()].map((row) => row.weight)) },
  { name: "entropy", title: "Mean entropy, nats", format: (x) => decimals(x, 2),
    of: (arm, s) => mean([...arm.rows[s].values()].map((row) => row.entropy)) },
  { name: "angle", title: "Mean angle from mask to mean", format: degrees,
    of: (arm, s) => mean([...arm.rows[s].values()].filter((row) => row.fed).map((row) => row.angle)) },
];

const xOf = (step) => LEFT + ((WIDTH - LEFT - RIGHT) * step) / STEPS;

class Plot {
  constructor(quantity, box, goTo) {
    Object.assign(this, quantity);
    this.values = ARMS.map((arm) => arm.states.map((_, s) => this.of(arm, s)));
    const known = this.values.flat().filter((value) => value !== null);
    this.top ??= niceTop(Math.max(0, ...known), this.name === "angle");
    this.picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${this.title} over the steps` });
    this.readings = ARMS.map((arm) => element("b", { class: "reading", "data-arm": arm.name, "data-name": this.name, title: arm.label }));
    box.append(element("figure", { class: "plot" },
      element("figcaption", {}, element("span", {}, this.title), element("span", { class: "readings" }, ...this.readings)), this.picture));
    this.draw();
    this.follow(goTo);
  }

  yOf(value) { return TOP + (HEIGHT - TOP - BOTTOM) * (1 - value / (this.top || 1)); }

  draw() {
    const fed = ARMS[0].times.map((time, s) => [time, s]).filter(([time]) => inBand(time)).map(([, s]) => s);
    if (fed.length) {
      const [from, to] = [xOf(fed[0]), xOf(fed.at(-1))];
      this.picture.append(svg("rect", { class: "band", x: from, width: Math.max(1, to - from), y: TOP, height: HEIGHT - TOP - BOTTOM }));
    }
    for (const value of [0, this.top / 2, this.top]) {
      const y = this.yOf(value);
      this.picture.append(svg("line", { class: "grid", x1: LEFT, x2: WIDTH - RIGHT, y1: y, y2: y }),
        svg("text", { class: "tick", x: LEFT - 6, y: y + 3, "text-anchor": "end" }, this.tick(value)));
    }
    for (const step of [0, Math.round(STEPS / 2), STEPS]) {
      this.picture.append(svg("text", { class: "tick", x: xOf(step), y: HEIGHT - 4, "text-anchor": step === STEPS ? "end" : step ? "middle" : "start" }, String(step)));
    }
    this.cursor = svg("line", { class: "cursor", y1: TOP, y2: HEIGHT - BOTTOM });
    this.picture.append(this.cursor);
    // Draw the first arm last, on top of the others.
    [...ARMS].reverse().forEach((arm) => {
      const points = this.values[arm.index];
      let path = "", open = false;
      points.forEach((value, s) => {
        if (value !== null) path += `${open ? "L" : "M"}${xOf(s).toFixed(1)} ${this.yOf(value).toFixed(1)}`;
        open = value !== null;
      });
      this.picture.append(svg("path", { class: arm.hasFeedback ? "line" : "line dotted", "data-arm": arm.name, d: path }));
    });
    this.dots = ARMS.map((arm) => svg("circle", { class: "dot", "data-arm": arm.name, r: 3.2 }));
    this.picture.append(...[...this.dots].reverse());
  }

  tick(value) {
    if (this.name === "masked") return `${100 * value}%`;
    if (this.name === "angle") return `${Math.round((value * 180) / Math.PI)}°`;
    const short = +value.toPrecision(3);
    return short !== 0 && short < 0.01 ? short.toExponential() : String(short); // as 1e-4: there is space for six letters
  }

  show(step) {
    this.cursor.setAttribute("x1", xOf(step));
    this.cursor.setAttribute("x2", xOf(step));
    ARMS.forEach((arm, a) => {
      const value = this.values[a][step];
      this.readings[a].textContent = value === null ? "–" : this.format(value);
      this.dots[a].toggleAttribute("hidden", value === null);
      this.dots[a].setAttribute("cx", xOf(step));
      this.dots[a].setAttribute("cy", value === null ? 0 : this.yOf(value));
    });
  }

  follow(goTo) {
    const move = (event) => {
      const box = this.picture.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * WIDTH;
      goTo(Math.round(((x - LEFT) / (WIDTH - LEFT - RIGHT)) * STEPS));
    };
    this.picture.addEventListener("pointerdown", (event) => {
      this.picture.setPointerCapture(event.pointerId);
      move(event);
    });
    this.picture.addEventListener("pointermove", (event) => { if (event.buttons) move(event); });
  }
}

// Round up to a round number; angles to a multiple of 30 degrees.
function niceTop(value, isAngle) {
  if (value === 0) return 1;
  if (isAngle) return (Math.ceil((value * 180) / Math.PI / 30) * 30 * Math.PI) / 180;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 3, 4, 5, 6, 8, 10].find((n) => n * power >= value * 0.9999) * power;
}
