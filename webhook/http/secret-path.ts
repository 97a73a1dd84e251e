/**
 * The secret segment of a call's path (docs/security.md#who-calls): `/~` and a hash of an authority's certificate, or
 * `/secret-` and the same in hexadecimal, as the aggregators write it into the webhook configurations of their cells.
 */
import { hash, timingSafeEqual } from "node:crypto";
import { readFileSync } from "node:fs";
import { pathSegment, splitCertificates } from "../../shared/certificates/ca-bundle.ts";
import type { Clock } from "../../shared/runtime/clock.ts";
import { mounted } from "../../shared/runtime/mount-root.ts";

/** An unknown segment has the file read again, at most so often. */
const READ_EVERY_MS = 1_000;
/** With those of authorities that are published no more: a cell may be late. The oldest go first. */
const MAX_KNOWN = 8;

/** The configuration names something that is missing or unusable. */
const EXIT_CONFIGURATION = 2;

function tell(text: string): void {
  process.stderr.write(`podseidon-webhook: --secret-path-file: ${text}\n`);
}

/** As {@link secretPaths}. Without a certificate it says why, and the process exits with 2. */
export function secretPathsOrExit(...from: Parameters<typeof secretPaths>): ReturnType<typeof secretPaths> {
  try {
    return secretPaths(...from);
  } catch (error) {
    tell(String(error));
    process.exit(EXIT_CONFIGURATION);
  }
}

/**
 * Whether a segment is of one of the certificates in `file`, now or since the start. Throws without any. A file that
 * can't be used later is told of once, when a segment is unknown.
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
  // Each is compared, and for as long whatever was given.
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
