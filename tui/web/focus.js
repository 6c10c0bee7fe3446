// Keys go to the app as soon as it has painted; without this the page would want a click first.
addEventListener("load", () => {
  const painted = new MutationObserver(() => {
    if (document.body.classList.contains("-first-byte")) {
      painted.disconnect();
      document.querySelector(".xterm-helper-textarea").focus();
    }
  });
  painted.observe(document.body, { attributes: true, attributeFilter: ["class"] });
});
