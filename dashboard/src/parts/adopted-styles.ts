/** Styles of a library that writes style elements, under a policy that permits none.
 *
 * xterm.js writes its colours and sizes into style elements, which the page's Content-Security-Policy
 * (style-src 'self') ignores. Constructed style sheets are permitted: they come from scripts, not markup.
 */

/** Run `open`; style elements that it creates become adopted style sheets. Returns what removes them. */
export function withAdoptedStyles(open: () => void): () => void {
  const sheets: CSSStyleSheet[] = [];
  const create = document.createElement.bind(document);
  const instead = (tag: string, options?: ElementCreationOptions): HTMLElement =>
    tag.toLowerCase() === "style" ? standIn(create("span"), sheets) : create(tag, options);
  document.createElement = instead as typeof document.createElement;
  try {
    open();
  } finally {
    Reflect.deleteProperty(document, "createElement");
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => !sheets.includes(each));
  };
}

/** Return an element without content whose text becomes the rules of a sheet of its own. */
function standIn(element: HTMLElement, sheets: CSSStyleSheet[]): HTMLElement {
  const sheet = new CSSStyleSheet();
  sheets.push(sheet);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  element.hidden = true;
  Object.defineProperty(element, "textContent", {
    get: () => "",
    set(rules: string | null) {
      sheet.replaceSync(rules ?? "");
    },
  });
  return element;
}
