"use strict";
// The data of the page: the text of each arm after every step, and the numbers of each position.
//
// State s is the text after s steps, 0 to DATA.steps. A masked position of state s has a row of numbers of the next
// pass: its feedback input and its prediction.

const DATA = JSON.parse(document.getElementById("data").textContent);
const STEPS = DATA.steps;
const LENGTH = DATA.arms[0].start.length;
const MASKED = -1;
const BYTES = DATA.tokens.map((token) => (typeof token === "string" ? new TextEncoder().encode(token) : token));

// Read a row as the trace writes it.
const readRow = ([position, weight, angle, entropy, ids, probs, share, blend]) => ({
  position, weight, angle, entropy, share,
  candidates: ids.map((id, k) => ({ id, prob: probs[k] * share })),
  fed: blend === null ? null : { meanAngle: blend[0], meanNorm: blend[1], turned: blend[2], norm: blend[3] },
});

function readArm(arm, index) {
  const states = [arm.start];
  const rows = [];
  const reveals = arm.start.map(() => []); // per position: { step, token }, several if it was masked again
  arm.steps.forEach((step, s) => {
    rows.push(new Map(step.masked.map((row) => [row[0], readRow(row)])));
    for (const [position, token] of step.revealed) reveals[position].push({ step: s + 1, token });
    const after = states[s].map((token, position) =>
      arm.start[position] !== MASKED || !nextMasked(arm, s, position) ? token : MASKED);
    for (const [position, token] of step.revealed) after[position] = token;
    states.push(s + 1 === STEPS ? arm.tokens : after);
  });
  rows.push(new Map());
  return {
    index,
    name: arm.operator,
    label: arm.label,
    about: arm.about,
    colour: arm.colour,
    keepsNorm: arm.keeps_norm,
    hasFeedback: arm.has_feedback,
    given: arm.start.map((token) => token !== MASKED),
    filled: new Set(arm.filled),
    times: arm.steps.map((step) => step.time),
    calls: arm.calls,
    states, rows, reveals,
  };
}

// Whether a position is masked at the start of the next step; remasking rules can mask a token again.
function nextMasked(arm, s, position) {
  if (s + 1 >= arm.steps.length) return false;
  const step = arm.steps[s + 1];
  step.blanks ??= new Set(step.masked.map((row) => row[0]));
  return step.blanks.has(position);
}

const ARMS = DATA.arms.map(readArm);

const inBand = (time) => time >= DATA.band[0] && time <= DATA.band[1];

// The first position at which the arms differ after a step, or -1.
const firstDifference = (step) =>
  ARMS[0].states[step].findIndex((token, i) => ARMS.some((arm) => arm.states[step][i] !== token));

// Decode UTF-8 across tokens. Each token gets pieces { text } or { bytes, text: U+FFFD }. A character belongs to the
// token of its first byte; incomplete characters are shown as bytes. Invalid input is split as in every decoder (the
// longest valid prefix of a character), so the joined text equals the tokenizer's.
function spell(tokens) {
  const pieces = tokens.map(() => []);
  let bytes = [], owners = [];
  tokens.forEach((token, position) => {
    if (token === MASKED) {
      spellRun(bytes, owners, pieces);
      bytes = []; owners = [];
    } else {
      for (const byte of BYTES[token]) { bytes.push(byte); owners.push(position); }
    }
  });
  spellRun(bytes, owners, pieces);
  return pieces;
}

function spellRun(bytes, owners, pieces) {
  for (let from = 0, to; from < bytes.length; from = to) {
    const first = bytes[from];
    let missing = first < 0x80 ? 0 : first < 0xc2 ? -1 : first < 0xe0 ? 1 : first < 0xf0 ? 2 : first < 0xf5 ? 3 : -1;
    let low = first === 0xe0 ? 0xa0 : first === 0xf0 ? 0x90 : 0x80;
    let high = first === 0xed ? 0x9f : first === 0xf4 ? 0x8f : 0xbf;
    let code = missing < 1 ? first : first & (0x3f >> missing);
    for (to = from + 1; missing > 0 && to < bytes.length && bytes[to] >= low && bytes[to] <= high; to++, missing--) {
      code = (code << 6) | (bytes[to] & 0x3f);
      low = 0x80; high = 0xbf;
    }
    const own = pieces[owners[from]];
    if (missing !== 0) own.push({ text: "\ufffd", bytes: bytes.slice(from, to) });
    else if (own.length && !own.at(-1).bytes) own.at(-1).text += String.fromCodePoint(code);
    else own.push({ text: String.fromCodePoint(code) });
  }
}

const hex = (bytes) => "⟨" + bytes.map((byte) => byte.toString(16).toUpperCase().padStart(2, "0")).join(" ") + "⟩";
const shown = (pieces) => pieces.map((piece) => (piece.bytes ? hex(piece.bytes) : piece.text)).join("");

// The text of a single token.
const tokenText = (id) => shown(spell([id])[0]);

// The text of a single token with visible white space.
const tokenName = (id) =>
  tokenText(id).replace(/ /g, "␣").replace(/\n/g, "↵").replace(/\t/g, "⇥").replace(/\r/g, "␍") || "(empty)";

// Decoded states, cached by arm and step.
const spelled = new Map();
function spelledState(arm, step) {
  const key = arm.index * (STEPS + 1) + step;
  if (!spelled.has(key)) spelled.set(key, spell(arm.states[step]));
  return spelled.get(key);
}

const element = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}
// A number with that many decimals; one that they would round to nearly nothing in powers of ten, as 2.0e-4.
const decimals = (x, digits) => (x === 0 || Math.abs(x) >= 10 ** -digits ? x.toFixed(digits) : x.toExponential(1));
const percent = (share) => (share >= 0.9995 ? "100 %" : `${(100 * share).toFixed(1)} %`);
const degrees = (radians) => `${((radians * 180) / Math.PI).toFixed(1)}°`;
