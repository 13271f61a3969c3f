// The inspector of one position of one arm: its feedback input, its prediction, and the token that was revealed.

function inspect(arm, step, position) {
  const box = element("div", { class: "inspector" });
  const token = arm.states[step][position];
  if (arm.given[position]) {
    box.append(element("p", { class: "fate" }, "Part of the prompt: ", quoted(token), "."));
    return box;
  }
  // A revealed token is shown with the prediction that it was drawn from.
  const reveal = arm.reveals[position].findLast((one) => one.step <= step);
  const from = token === MASKED ? step : reveal ? reveal.step - 1 : STEPS - 1;
  const row = arm.rows[from].get(position);
  const predicted = element("section", {},
    element("h4", {}, "Prediction", element("span", {}, ` of step ${from + 1}`)),
    bars(row, token),
    element("p", { class: "figure" }, element("span", {}, "entropy"), number("entropy", `${row.entropy.toFixed(2)} nats`)));
  const source = row.fed ? ` for step ${from + 1}, from the prediction of step ${from}` : ` for step ${from + 1}`;
  const fed = element("section", {}, element("h4", {}, "Feedback", element("span", {}, source)),
    row.fed ? geometry(arm, row) : element("p", { class: "nothing" }, whyNothing(arm, from)));
  box.append(fate(arm, step, position, row), element("div", { class: "in-and-out" }, predicted, fed));
  return box;
}

// Say when a position is revealed, and as which token.
function fate(arm, step, position, row) {
  const line = element("p", { class: "fate" });
  const token = arm.states[step][position];
  if (token === MASKED) {
    const next = arm.reveals[position].find((one) => one.step > step);
    if (next) line.append("Masked. Revealed as ", quoted(next.token), ` in step ${next.step}.`);
    else line.append("Masked. Filled with ", quoted(arm.states[STEPS][position]), " after the last step.");
    return line;
  }
  const reveal = arm.reveals[position].findLast((one) => one.step <= step);
  if (!reveal) {
    line.append("Filled with ", quoted(token), " after the last step, by greedy decoding.");
    return line;
  }
  const rank = row.candidates.findIndex((candidate) => candidate.id === token);
  const origin = rank === 0 ? "the top candidate" : rank > 0 ? `candidate ${rank + 1}` : `not among the top ${row.candidates.length}`;
  line.append("Revealed as ", quoted(token), " in step ", element("b", { "data-name": "reveal-step" }, String(reveal.step)), `, ${origin}.`);
  return line;
}

function bars(row, token) {
  const list = element("ol", { class: "bars", "aria-label": "Candidates" });
  const line = (name, share, kind) => {
    const bar = element("span", { class: "bar" }, element("i"));
    bar.firstChild.style.setProperty("--share", share.toFixed(4));
    list.append(element("li", { class: kind }, name, bar, number("prob", percent(share))));
  };
  for (const { id, prob } of row.candidates) line(quoted(id), prob, id === token ? "taken" : "");
  line(element("span", { class: "others" }, "all others"), Math.max(0, 1 - row.share), "rest");
  return list;
}

function whyNothing(arm, from) {
  if (!arm.hasFeedback) return "No feedback: the input is the mask embedding at every step.";
  if (from === 0) return "No feedback yet: there is no earlier prediction.";
  if (!inBand(arm.times[from])) {
    return `No feedback: time ${arm.times[from].toFixed(2)} is outside the band from ${DATA.band[0]} to ${DATA.band[1]}.`;
  }
  return "No feedback: the position was masked again and has no earlier prediction.";
}

// The plane through mask and mean, with the input embedding; lengths in units of the mask's norm. Operators that keep
// the norm are drawn on the great circle to the Fréchet mean, others on the chord to the Euclidean mean.
function geometry(arm, row) {
  const straight = !arm.keepsNorm;
  const { meanAngle, meanNorm, turned, norm } = row.fed;
  const target = straight ? { angle: meanAngle, norm: meanNorm } : { angle: row.angle, norm: 1 };
  const figures = [
    ["weight", decimals(row.weight, 3), "weight"],
    ["angle", degrees(row.angle), "mask to mean"],
    ["turned", degrees(turned), "mask to input"],
    ["norm", norm.toFixed(3), "norm (mask = 1)"],
  ];
  const list = element("dl", { class: "figures" });
  for (const [name, value, label] of figures) {
    list.append(element("div", {}, element("dt", {}, label), element("dd", { "data-name": name }, value)));
  }
  const gap = 1 - norm;
  const off = Math.abs(gap) < 0.0005 ? "On the sphere." : `${percent(Math.abs(gap))} ${gap > 0 ? "inside" : "outside"} the sphere.`;
  const words = element("p", { class: "where" }, "Input: ", element("b", { "data-name": "inside" }, off));
  return element("div", { class: "geometry" }, drawing(target, turned, norm, straight), element("div", {}, list, words));
}

function drawing(target, turned, norm, straight) {
  const radius = 84 / Math.max(1, target.norm, norm);
  const [x0, y0] = [110, 104];
  // The mask is on the left, the mean on the right, and the bisector is vertical.
  const at = (angle, length) => {
    const from = Math.PI / 2 + target.angle / 2 - angle;
    return [x0 + radius * length * Math.cos(from), y0 - radius * length * Math.sin(from)];
  };
  const line = (kind, a, b) => svg("line", { class: kind, x1: a[0], y1: a[1], x2: b[0], y2: b[1] });
  const arc = (kind, to, length = 1) => {
    const [a, b] = [at(0, length), at(to, length)];
    const r = radius * length;
    return svg("path", { class: kind, d: `M${a}A${r} ${r} 0 0 1 ${b}` });
  };
  const [mask, mean, point, above] = [at(0, 1), at(target.angle, target.norm), at(turned, norm), at(turned, 1)];
  const label = (text, [x, y], side) =>
    svg("text", { x: x + 9 * side, y: y + (y > 96 ? 16 : -6), "text-anchor": side < 0 ? "end" : "start" }, text);
  const name = straight
    ? `Chord from the mask to the mean, with the input at ${norm.toFixed(3)} of the mask's norm`
    : `Great circle from the mask to the mean, with the input ${degrees(turned)} from the mask`;
  const picture = svg("svg", { class: "arc", viewBox: "0 0 220 128", role: "img", "aria-label": name });
  picture.append(
    svg("circle", { class: "sphere", cx: x0, cy: y0, r: radius }),
    line("ray", [x0, y0], mask), line("ray", [x0, y0], mean),
    arc("angle", target.angle, Math.min(0.24, 20 / radius)),
    straight ? line("way", mask, mean) : arc("way", target.angle),
    straight ? line("gone", mask, point) : arc("gone", turned, norm),
  );
  if (straight) picture.append(line("gap", point, above));
  picture.append(
    svg("circle", { class: "end", cx: mask[0], cy: mask[1], r: 3.5 }),
    svg("circle", { class: "end", cx: mean[0], cy: mean[1], r: 3.5 }),
    svg("circle", { class: "point", cx: point[0], cy: point[1], r: 5.5 }),
    label("mask", mask, -1), label("mean", mean, 1),
    svg("text", { class: "opening", x: x0, y: y0 - 26, "text-anchor": "middle" }, `${Math.round((target.angle * 180) / Math.PI)}°`),
  );
  return picture;
}

const quoted = (id) => element("q", { class: "token" }, tokenName(id));
const number = (name, text) => element("b", { "data-name": name }, text);
