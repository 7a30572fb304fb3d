/** Tabs over a panel, with the arrow keys of the ARIA pattern. */

import type { ComponentChildren } from "preact";
import { useId } from "preact/hooks";

export function Tabs<T extends string>(props: {
  tabs: readonly T[];
  current: T;
  onPick: (tab: T) => void;
  label: string;
  children: ComponentChildren;
}) {
  const { tabs, current, onPick, label, children } = props;
  const id = useId();
  const move = (event: KeyboardEvent) => {
    const by = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (by === 0) return;
    const next = tabs[(tabs.indexOf(current) + by + tabs.length) % tabs.length] as T;
    onPick(next);
    (event.currentTarget as HTMLElement).querySelector<HTMLElement>(`[data-tab="${next}"]`)?.focus();
  };
  return (
    <>
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((each) => (
          <button key={each} type="button" role="tab" data-tab={each} id={`${id}-${each}`} aria-selected={each === current} aria-controls={`${id}-panel`} tabIndex={each === current ? 0 : -1} onClick={() => onPick(each)}>
            {each}
          </button>
        ))}
      </div>
      <div class="panel" role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${current}`}>
        {children}
      </div>
    </>
  );
}
