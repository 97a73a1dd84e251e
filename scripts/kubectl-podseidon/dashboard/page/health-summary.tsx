/** The number of protectors in each health; each number filters the table. */
import { HEALTHS, type Health, statesOf } from "../../health.ts";
import type { NO_FILTER } from "./rows.ts";
import { store } from "./store.ts";
import { HEALTH_WORDS, numberText } from "./words.ts";

/** A shape for each health, so that colour is not the only difference. */
const SHAPES: Readonly<Record<Health, string>> = { trouble: "▲", attention: "◆", order: "●" };

export function HealthMark({ health }: { readonly health: Health }) {
  return (
    <span class={`shape ${health}`} aria-hidden="true">
      {SHAPES[health]}
    </span>
  );
}

export function HealthSummary() {
  return (
    <section class="healths" aria-label="Protectors by health">
      {HEALTHS.map((health) => (
        <HealthTile key={health} health={health} />
      ))}
    </section>
  );
}

function HealthTile({ health }: { readonly health: Health }) {
  const counts = store.states.value;
  const filter = store.filter.value;
  const { title, hint } = HEALTH_WORDS[health];
  const present = statesOf(health).filter((state) => (counts.get(state) ?? 0) > 0);
  const all = present.reduce((sum, state) => sum + (counts.get(state) ?? 0), 0);
  const choose = (chosen: Partial<typeof NO_FILTER>, isOn: boolean): void => {
    store.filter.value = { ...filter, health: undefined, state: undefined, ...(isOn ? {} : chosen) };
    store.page.value = 0;
  };
  return (
    <div class={`tile ${health}`}>
      <button
        type="button"
        class="total"
        title={hint}
        aria-pressed={filter.health === health}
        onClick={() => choose({ health }, filter.health === health)}
      >
        <HealthMark health={health} />
        <b>{numberText(all)}</b> {title}
      </button>
      <ul>
        {present.map((state) => (
          <li key={state}>
            <button
              type="button"
              class="chip"
              aria-pressed={filter.state === state}
              onClick={() => choose({ state }, filter.state === state)}
            >
              {state} <b>{numberText(counts.get(state) ?? 0)}</b>
            </button>
          </li>
        ))}
      </ul>
    </div>
  );
}
