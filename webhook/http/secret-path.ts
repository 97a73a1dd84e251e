/**
 * The secret segment of a call's path (docs/security.md#who-calls): `/~` and a hash of an authority's certificate, or
 * `/secret-` and the same in hexadecimal, as the aggregators write it into the webhook configurations of their cells.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathSegment, splitCertificates } from "../../shared/certificates/ca-bundle.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import { mounted } from "../../shared/runtime/mount-root.ts";

/** Shortest time between reads of the file, which an unknown segment starts. */
const READ_EVERY_MS = 1_000;
/**
 * Includes the segments of authorities that were replaced, because a cell may still use them. The oldest are dropped.
 */
const MAX_KNOWN = 8;

/** The configuration names something that is missing or unusable. */
const EXIT_CONFIGURATION = 2;

function tell(text: string): void {
  process.stderr.write(`podseidon-webhook: --secret-path-file: ${text}\n`);
}

/** As {@link secretPaths}, but logs the error and exits with 2 where the file holds no certificate. */
export function secretPathsOrExit(...from: Parameters<typeof secretPaths>): ReturnType<typeof secretPaths> {
  try {
    return secretPaths(...from);
  } catch (error) {
    tell(String(error));
    process.exit(EXIT_CONFIGURATION);
  }
}

/**
 * Returns a check of whether a segment belongs to a certificate that `file` holds, or has held since the start. Throws
 * where the file holds none at the start. Reports once when a later read of the file, for an unknown segment, fails.
 */
export function secretPaths(
  file: string,
  clock: Pick<Clock, "monotonicMs">,
  told: (text: string) => void = tell,
): (segment: string) => boolean {
  let isTold = false;
  let known: readonly Buffer[] = [];
  let readMs = clock.monotonicMs();
  const read = (): void => {
    const segments = splitCertificates(readFileSync(mounted(file), "utf8")).map((pem) => digest(pathSegment(pem)));
    if (segments.length === 0) throw new Error(`${file} holds no certificate in PEM form`);
    const others = known.filter((one) => !segments.some((segment) => segment.equals(one)));
    known = [...others, ...segments].slice(-MAX_KNOWN);
  };
  // Compares with every known segment in constant time, so that the time reveals nothing.
  const isKnown = (given: Buffer): boolean => known.filter((one) => timingSafeEqual(one, given)).length > 0;
  read();
  return (segment) => {
    const given = digest(segment);
    const nowMs = clock.monotonicMs();
    if (isKnown(given)) return true;
    if (nowMs - readMs < READ_EVERY_MS) return false;
    readMs = nowMs;
    try {
      read();
      isTold = false;
    } catch (error) {
      if (!isTold) told(`${String(error)}; what was read last stays in force, and calls by a newer path get 404`);
      isTold = true;
    }
    return isKnown(given);
  };
}

function digest(text: string): Buffer {
  return hash("sha256", text, "buffer");
}
