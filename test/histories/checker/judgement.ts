/** What a judge of a history finds. */

type Check = "counter" | "dropped" | "counts" | "returned";

export class Judgement {
  readonly violations: string[] = [];
  /** How often something was judged: a check that judges nothing shows nothing. */
  readonly numbers = new Map<string, number>();

  violation(check: Check, what: string): void {
    this.violations.push(`${check}: ${what}`);
  }

  judged(what: string): void {
    this.numbers.set(what, (this.numbers.get(what) ?? 0) + 1);
  }
}
