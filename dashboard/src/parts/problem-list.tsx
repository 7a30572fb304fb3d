/** What is wrong, in words, and what to do about it. */

import type { Problem } from "../model/problems";

/** Longer reasons scroll: keys must reach them. */
const LONG = 300;

export function ProblemList({ problems }: { problems: readonly Problem[] }) {
  if (problems.length === 0) return null;
  return (
    <section class="problems" aria-label="What is wrong">
      <ul>
        {problems.map((each) => (
          <li key={each.key} class={each.severity}>
            {each.link && each.link !== location.hash ? <a href={each.link}>{each.title}</a> : <strong>{each.title}</strong>}
            {each.reason && (
              <p class="reason" tabIndex={each.reason.length > LONG ? 0 : undefined}>
                {each.reason}
              </p>
            )}
            <p class="remedy">{each.remedy}</p>
          </li>
        ))}
      </ul>
    </section>
  );
}
