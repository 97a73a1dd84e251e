/**
 * The text of a hold (docs/design.md#lost-history): `REASON/SECONDS-TOKEN`. SECONDS is the time of the write (Unix
 * time), for people. TOKEN distinguishes holds: no decision uses the time of another process.
 */

const WRITTEN_AT = /\/(\d{1,12})-/;

export function holdOf(reason: string, token: string, nowMs: number): string {
  return `${reason}/${Math.floor(nowMs / 1000)}-${token}`;
}

/** The same hold, which is written later. */
export function holdAt(hold: string, nowMs: number): string {
  return hold.replace(WRITTEN_AT, `/${Math.floor(nowMs / 1000)}-`);
}

/** Unix milliseconds of the write; undefined for a text of an earlier version. */
export function holdWrittenMs(hold: string): number | undefined {
  const seconds = WRITTEN_AT.exec(hold)?.[1];
  return seconds === undefined ? undefined : Number(seconds) * 1000;
}
