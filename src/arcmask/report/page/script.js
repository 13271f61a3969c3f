// Show the samples of the selected budget and seed. Without scripts, all samples are shown.
for (const box of document.querySelectorAll("[data-samples]")) {
  const choose = box.querySelector(".choose");
  const selects = [...choose.querySelectorAll("select")];
  const panels = [...box.querySelectorAll(".panel")];
  const show = () => {
    for (const panel of panels) {
      panel.hidden = !selects.every((select) => panel.dataset[select.dataset.key] === select.value);
    }
  };
  choose.hidden = false;
  for (const select of selects) select.addEventListener("change", show);
  show();
}
// Mark the current section in the table of contents.
const links = new Map(
  [...document.querySelectorAll(".contents-wide a")].map((link) => [link.getAttribute("href").slice(1), link]),
);
const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      links.get(target.id)?.classList.toggle("here", isIntersecting);
    }
  },
  { rootMargin: "-10% 0px -80% 0px" },
);
for (const section of document.querySelectorAll("main section[id]")) seen.observe(section);
// Close the contents of narrow screens after a click.
for (const link of document.querySelectorAll(".contents a")) {
  link.addEventListener("click", () => link.closest("details").removeAttribute("open"));
}
