// The texts: one for each arm, one element for each position, in place from the first step to the last.
//
// A blank takes the room of what will stand there, with the space around it, so that nothing moves while the text forms.
// Apart from that space, only what is really there is text of the document; the style sheet draws blanks and candidates.

const HEAVIEST = Math.max(0, ...ARMS.flatMap((arm) => arm.rows.flatMap((rows) => [...rows.values()].map((r) => r.weight))));

// What a position's text is made of on the page: space before the cell, the cell, space behind it.
function layOut(pieces) {
  const text = shown(pieces);
  if (/^\s*\n\s*$/.test(text)) return { before: "", mark: "↵", after: text };
  const [before] = /^\s+$/.test(text) ? [""] : text.match(/^\s*/);
  return { before, body: text.slice(before.length), after: "" };
}

class ArmText {
  constructor(arm, box) {
    this.arm = arm;
    this.final = spell(arm.states[STEPS]).map(layOut);
    this.spans = this.final.map((_, i) => element("span", { class: "pos", role: "button", tabindex: -1, "data-i": i }));
    this.standing = []; // of each position: its pieces if a token stands there, null if it is a blank
    this.box = box;
    this.reading = element("p", { class: "unseen" });
    box.append(...this.spans);
  }

  show(step, difference) {
    const { arm } = this;
    const pieces = spelledState(arm, step);
    this.spans.forEach((span, i) => {
      const token = arm.states[step][i];
      const row = arm.rows[step].get(i);
      const fresh = step > 0 && token !== MASKED && arm.states[step - 1][i] === MASKED;
      const kind = "pos" + (arm.given[i] ? " given" : row ? " masked" : "") + (fresh ? " fresh" : "") +
        (i === difference ? " differs" : "");
      if (span.className !== kind) span.className = kind;
      if (row) this.showBlank(span, i, row); else this.showToken(span, i, pieces[i]);
      const label = this.describe(i, token, row);
      if (span.getAttribute("aria-label") !== label) span.setAttribute("aria-label", label);
    });
    const words = pieces.map((piece, i) => (arm.states[step][i] === MASKED ? "_" : shown(piece))).join("");
    this.reading.textContent = `Text so far, blanks as underscores: ${words}`;
  }

  showBlank(span, i, row) {
    if (this.standing[i] !== null) {
      const room = this.final[i];
      const made = element("span", { class: "cell", "data-room": room.mark ?? (room.body || " ") });
      span.replaceChildren(room.before, made, room.after);
      this.standing[i] = null;
    }
    const cell = span.firstElementChild;
    const ghost = tokenText(row.candidates[0].id);
    cell.dataset.ghost = ghost.trim() ? ghost.trimStart() : tokenName(row.candidates[0].id);
    cell.style.setProperty("--weight", HEAVIEST > 0 ? (row.weight / HEAVIEST).toFixed(3) : 0);
    cell.style.setProperty("--sure", row.candidates[0].prob.toFixed(3));
  }

  showToken(span, i, pieces) {
    if (this.standing[i] && shown(this.standing[i]) === shown(pieces)) return;
    this.standing[i] = pieces;
    const { before, mark, after } = layOut(pieces);
    const cell = element("span", { class: "cell" + (mark ? " mark" : "") + (pieces.length ? "" : " empty") });
    if (!mark) {
      // What is shown for bytes is not the text they stand for, so the style sheet shows it.
      let left = before.length;
      for (const piece of pieces) {
        if (piece.bytes) cell.append(element("span", { class: "bytes", "data-hex": hex(piece.bytes) }, piece.text));
        else cell.append(piece.text.slice(left));
        left = 0;
      }
    } else cell.dataset.room = mark;
    span.replaceChildren(before, cell, after);
  }

  describe(i, token, row) {
    if (row) {
      const [top] = row.candidates;
      return `position ${i + 1}, blank, leading candidate ${spoken(top.id)} with ${percent(top.prob)}`;
    }
    return `position ${i + 1}, ${spoken(token)}, ${this.arm.given[i] ? "given" : "revealed"}`;
  }

  select(position, held) {
    this.box.querySelector(".selected")?.classList.remove("selected", "held");
    const before = this.box.querySelector('[tabindex="0"]');
    before?.setAttribute("tabindex", -1);
    before?.removeAttribute("aria-pressed");
    const span = this.spans[position];
    span.classList.add("selected");
    span.classList.toggle("held", held);
    span.setAttribute("tabindex", 0);
    span.setAttribute("aria-pressed", held);
  }
}

const spoken = (id) => ({ " ": "space", "\n": "new line", "\t": "tab" })[tokenText(id)] ?? tokenText(id);
