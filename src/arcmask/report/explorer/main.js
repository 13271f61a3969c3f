// The state of the page (step, position, visible arms) and the controls that change it.

const byId = (id) => document.getElementById(id);
const NARROW = matchMedia("(max-width: 760px)");
const PACE = Math.max(60, Math.min(400, 9600 / STEPS)); // milliseconds per step while playing

const state = { step: 0, position: Math.max(0, ARMS[0].states[0].indexOf(MASKED)), held: false, timer: null };

const cards = ARMS.map((arm) => {
  const box = element("div", { class: "text", role: "group", "aria-label": `Text of ${arm.label}` });
  const panel = element("div", { class: "panel" });
  const card = element("article", { class: "arm", "data-arm": arm.name, "aria-label": arm.label },
    element("header", {}, element("h3", {}, arm.label), element("p", {}, arm.about)),
    box, panel);
  byId("arms").append(card);
  const text = new ArmText(arm, box);
  card.insertBefore(text.reading, box);
  return { arm, card, panel, text };
});
const plots = QUANTITIES.map((quantity) => new Plot(quantity, byId("plots"), (step) => { pause(); goTo(step); }));
const differences = ARMS[0].states.map((_, s) => firstDifference(s));
const firstApart = differences.findIndex((position) => position >= 0);

function goTo(step) {
  state.step = Math.min(STEPS, Math.max(0, step));
  render();
}

function render() {
  const { step } = state;
  const time = ARMS[0].times[step];
  for (const { text } of cards) text.show(step, differences[step]);
  for (const plot of plots) plot.show(step);
  renderPosition();
  byId("slider").value = step;
  byId("step").textContent = step;
  byId("time").textContent = step < STEPS ? `time ${time.toFixed(2)}` : "time 0";
  const masked = ARMS[0].states[step].filter((token) => token === MASKED).length;
  const spokenStep = `step ${step} of ${STEPS}, ${masked} of ${LENGTH} positions masked`;
  byId("slider").setAttribute("aria-valuetext", spokenStep);
  if (state.timer === null) byId("announcer").textContent = spokenStep;
  const fed = step < STEPS && cards.some(({ arm }) => [...arm.rows[step].values()].some((row) => row.fed));
  byId("band-now").textContent = step === STEPS ? "done" : fed ? "feedback on" : "feedback off";
  byId("band-now").classList.toggle("on", fed);
}

function renderPosition() {
  for (const { arm, panel, text } of cards) {
    text.select(state.position, state.held);
    panel.replaceChildren(
      element("p", { class: "where-at" }, `Position ${state.position + 1}`, element("span", {}, state.held ? "pinned; click it again to release" : "")),
      inspect(arm, state.step, state.position));
  }
}

function select(position, held = state.held) {
  state.position = Math.min(LENGTH - 1, Math.max(0, position));
  state.held = held;
  renderPosition();
}

function play() {
  if (state.step === STEPS) goTo(0);
  state.timer = setInterval(() => {
    if (state.step + 1 >= STEPS) pause();
    goTo(state.step + 1);
  }, PACE);
  document.body.classList.add("playing");
  byId("play-label").textContent = "Pause";
}

function pause() {
  clearInterval(state.timer);
  state.timer = null;
  document.body.classList.remove("playing");
  byId("play-label").textContent = "Play";
}

const toggle = () => (state.timer === null ? play() : pause());
const jump = (step) => { pause(); goTo(step); };

// Show all arms, or one.
function view(name) {
  for (const { arm, card } of cards) card.hidden = name !== null && name !== arm.name;
  byId("arms").classList.toggle("single", name !== null || ARMS.length === 1);
  for (const button of byId("views").children) button.setAttribute("aria-pressed", button.dataset.view === (name ?? ""));
}

function setUp() {
  byId("slider").max = STEPS;
  byId("of").textContent = ` / ${STEPS}`;
  byId("heaviest").textContent = decimals(HEAVIEST, 2);
  document.querySelector(".scale-item").hidden = HEAVIEST === 0;
  const fed = ARMS[0].times.map((time, s) => (inBand(time) ? s : -1)).filter((s) => s >= 0);
  if (fed.length) {
    byId("track-band").style.left = `${(100 * fed[0]) / STEPS}%`;
    byId("track-band").style.width = `${(100 * (fed.at(-1) - fed[0])) / STEPS}%`;
  }
  for (const [name, value] of DATA.facts) byId("facts").append(element("dt", {}, name), element("dd", {}, value));
  byId("command").textContent = DATA.command;
  if (ARMS.length > 1) {
    const addView = (name, label, attributes) => {
      const button = element("button", { type: "button", "data-view": name ?? "", ...attributes }, label);
      button.addEventListener("click", () => view(name));
      byId("views").append(button);
    };
    addView(null, "side by side", {});
    for (const { name, label } of ARMS) addView(name, label, { "data-arm": name });
  }
  const apart = byId("difference");
  apart.hidden = ARMS.length < 2;
  byId("difference-key").hidden = ARMS.length < 2;
  apart.disabled = firstApart < 0;
  apart.textContent = firstApart < 0
    ? "the arms do not differ"
    : `go to the first difference (step ${firstApart})`;
  apart.addEventListener("click", () => { jump(firstApart); select(differences[firstApart], true); });
  view(NARROW.matches && ARMS.length > 1 ? ARMS[0].name : null);
  for (const { name, colour } of ARMS) {
    for (const node of document.querySelectorAll(`[data-arm="${CSS.escape(name)}"]`)) node.style.setProperty("--colour", colour);
  }
}

function listen() {
  byId("first").addEventListener("click", () => jump(0));
  byId("back").addEventListener("click", () => jump(state.step - 1));
  byId("forward").addEventListener("click", () => jump(state.step + 1));
  byId("last").addEventListener("click", () => jump(STEPS));
  byId("play").addEventListener("click", toggle);
  byId("slider").addEventListener("input", (event) => jump(Number(event.target.value)));
  const positionOf = (event) => event.target.closest?.(".pos")?.dataset.i;
  for (const { text } of cards) {
    text.box.addEventListener("pointerover", (event) => {
      const position = positionOf(event);
      if (position !== undefined && event.pointerType === "mouse" && !state.held) select(Number(position));
    });
    text.box.addEventListener("focusin", (event) => {
      const position = positionOf(event);
      if (position !== undefined && Number(position) !== state.position) select(Number(position));
    });
    text.box.addEventListener("click", (event) => {
      const position = positionOf(event);
      if (position !== undefined) select(Number(position), !(state.held && Number(position) === state.position));
    });
  }
  document.addEventListener("keydown", onKey);
}

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { target, key } = event;
  const card = cards.find(({ text }) => text.box.contains(target));
  const onButton = target.tagName === "BUTTON";
  if (target.id === "slider" && /^(Arrow|Home|End|Page)/.test(key)) return; // the slider handles these itself
  const moves = {
    ArrowRight: () => jump(state.step + 1),
    ArrowLeft: () => jump(state.step - 1),
    Home: () => jump(0),
    End: () => jump(STEPS),
    Escape: () => select(state.position, false),
  };
  const inText = {
    ArrowDown: () => walk(card, 1),
    ArrowUp: () => walk(card, -1),
    Enter: () => select(state.position, !state.held),
  };
  const action = moves[key] ?? (card && inText[key]) ?? (key === " " && !onButton ? toggle : undefined);
  if (!action) return;
  event.preventDefault();
  action();
}

function walk(card, by) {
  select(state.position + by);
  card.text.spans[state.position].focus();
}

setUp();
listen();
render();
