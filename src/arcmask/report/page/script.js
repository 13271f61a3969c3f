// The chooser of samples: without a script every panel is shown, with it the one that is chosen.
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
// The contents tell where one is.
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
// A choice in the narrow contents folds them again.
for (const link of document.querySelectorAll(".contents a")) {
  link.addEventListener("click", () => link.closest("details").removeAttribute("open"));
}
