import type { ComponentChildren } from "preact";

interface WideOptions {
  readonly label: string;
  readonly children: ComponentChildren;
}

/** What may be wider than the window: it scrolls, with the keyboard too. */
export function Wide({ label, children }: WideOptions) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: only what has the focus scrolls with the keyboard
    <section class="wide" aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
