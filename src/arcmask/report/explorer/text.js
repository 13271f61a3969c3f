// The texts: one per arm, with one element per position.
//
// A masked position has the width of its final token, so that the layout does not move. Masked cells and candidates are
// drawn by the style sheet; only revealed tokens and white space are text of the document.

const HEAVIEST = Math.max(0, ...ARMS.flatMap((arm) => arm.rows.flatMap((rows) => [...rows.values()].map((r) => r.weight))));

// Split a position's text into the space before the cell, the cell, and the space after it.
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
    this.standing = []; // per position: the pieces of its token, or null if it is masked
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
      if (row) this.showMasked(span, i, row); else this.showToken(span, i, pieces[i]);
      const label = this.describe(i, token, row);
      if (span.getAttribute("aria-label") !== label) span.setAttribute("aria-label", label);
    });
    const words = pieces.map((piece, i) => (arm.states[step][i] === MASKED ? "_" : shown(piece))).join("");
    this.reading.textContent = `Current text, with underscores for masked positions: ${words}`;
  }

  showMasked(span, i, row) {
    if (this.standing[i] !== null) {
      const room = this.final[i];
      const masked = element("span", { class: "cell", "data-room": room.mark ?? (room.body || " ") });
      span.replaceChildren(room.before, masked, room.after);
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
      // The style sheet shows the hexadecimal bytes, so that they are not part of the text.
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
      return `position ${i + 1}, masked, top candidate ${spoken(top.id)} with ${percent(top.prob)}`;
    }
    return `position ${i + 1}, ${spoken(token)}, ${this.arm.given[i] ? "prompt" : "revealed"}`;
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
