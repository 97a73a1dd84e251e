import { statSync } from "node:fs";
import type { Timer, Timers } from "../../shared/runtime/clock.ts";
import { mounted } from "../../shared/runtime/mount-root.ts";
import { type CertificateFiles, readServingCertificate, type ServingCertificate } from "./serving-certificate.ts";

/** How often the files are looked at. Polled, because a mounted Secret changes by a swapped symbolic link far above the file. */
const LOOK_EVERY_MS = 5_000;

export interface CertificateReloadOptions extends CertificateFiles {
  /** What was read at the start, perhaps a while ago. */
  readonly served: ServingCertificate;
  readonly timers: Timers;
  readonly changed: (certificate: ServingCertificate) => void;
  /** A new pair that can't be served: the old one stays in use, and the files are tried again when they change. */
  readonly failed: (error: unknown) => void;
}

function stamp(path: string): string {
  try {
    const { ino, mtimeMs, size } = statSync(mounted(path));
    return `${ino}/${mtimeMs}/${size}`;
  } catch {
    return "absent";
  }
}

function isSame(a: ServingCertificate, b: ServingCertificate): boolean {
  return a.cert === b.cert && a.key === b.key && a.ca === b.ca;
}

/**
 * Watches the serving certificate's files and hands over each new pair that fits (design 11, hot reload). A pair that is half
 * written is tried again at the next look. Returns what ends it.
 */
export function watchServingCertificate(options: CertificateReloadOptions): () => void {
  const files = [options.certFile, options.keyFile, ...(options.clientCaFile ? [options.clientCaFile] : [])];
  const stamps = (): string => files.map(stamp).join(" ");
  let { served } = options;
  // Whether the files are still those that were read at the start is for the first look to see.
  let loaded = "";
  let complained = "";
  let timer: Timer;
  const look = (): void => {
    const now = stamps();
    if (now !== loaded) {
      try {
        const found = readServingCertificate(options);
        if (!isSame(found, served)) options.changed(found);
        served = found;
        loaded = now;
      } catch (error) {
        if (now !== complained) options.failed(error);
        complained = now;
      }
    }
    timer = options.timers.after(LOOK_EVERY_MS, look);
  };
  timer = options.timers.after(LOOK_EVERY_MS, look);
  return () => timer.cancel();
}
