/** A long list of which only the rows on the screen exist. Rows are equally high. */

import type { ComponentChildren } from "preact";
import { memo } from "preact/compat";
import { useLayoutEffect, useRef, useState } from "preact/hooks";

const SPARE_ROWS = 8;

/** One row, which is drawn anew only when its item is another. */
const Row = memo(
  ({ item, index, render }: { item: unknown; index: number; render: (item: unknown) => ComponentChildren }) => (
    <div class="row" role="row" aria-rowindex={index + 2}>
      {render(item)}
    </div>
  ),
  (before, now) => before.item === now.item && before.index === now.index,
);

export function VirtualList<T>(props: {
  items: readonly T[];
  rowHeight: number;
  keyOf: (item: T) => string;
  render: (item: T) => ComponentChildren;
  label: string;
  /** The columns' titles, for a table. */
  columns: readonly string[];
  class?: string;
}) {
  const { items, rowHeight, keyOf, render, label, columns } = props;
  const scroller = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ top: 0, height: 800 });
  useLayoutEffect(() => {
    const element = scroller.current;
    if (!element) return;
    const read = () => setView({ top: element.scrollTop, height: element.clientHeight });
    read();
    const sizes = new ResizeObserver(read);
    sizes.observe(element);
    element.addEventListener("scroll", read, { passive: true });
    return () => {
      sizes.disconnect();
      element.removeEventListener("scroll", read);
    };
  }, []);
  const first = Math.max(0, Math.floor(view.top / rowHeight) - SPARE_ROWS);
  const last = Math.min(items.length, Math.ceil((view.top + view.height) / rowHeight) + SPARE_ROWS);
  const space = useRef<HTMLDivElement>(null);
  const moved = useRef<HTMLDivElement>(null);
  // Sizes are set on the objects of styles: the page's policy permits no style attributes.
  useLayoutEffect(() => {
    if (space.current) space.current.style.height = `${items.length * rowHeight}px`;
    if (moved.current) moved.current.style.transform = `translateY(${first * rowHeight}px)`;
  });
  return (
    <div class={`table ${props.class ?? ""}`}>
      <div class="scroller" ref={scroller} tabIndex={0} role="table" aria-label={label} aria-rowcount={items.length + 1}>
        <div class="heads" role="rowgroup">
          <div class="row head" role="row" aria-rowindex={1}>
            {columns.map((each) => (
              <span key={each} role="columnheader">
                {each}
              </span>
            ))}
          </div>
        </div>
        <div ref={space} class="space" role="rowgroup">
          <div ref={moved} class="moved" role="presentation">
            {items.slice(first, last).map((item, index) => (
              <Row key={keyOf(item)} item={item} index={first + index} render={render as (item: unknown) => ComponentChildren} />
            ))}
          </div>
        </div>
      </div>
    </div>
  );
}
