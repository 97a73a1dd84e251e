import type { ComponentChildren } from "preact";

interface WideOptions {
  readonly label: string;
  readonly children: ComponentChildren;
}

/** Content that may be wider than the window, and scrolls, also by keyboard. */
export function Wide({ label, children }: WideOptions) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: only what has the focus scrolls with the keyboard
    <section class="wide" aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
