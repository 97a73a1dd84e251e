import { readFile, stat } from "node:fs/promises";
import { AccessError } from "./cluster-access.ts";

/** The file is looked at no more often than this. */
const CHECK_EVERY_MS = 5_000;
/** It is read again after this even when it looks unchanged (a file system whose times say nothing). */
const READ_EVERY_MS = 60_000;

/** A token or certificate file that is replaced while the process runs (projected volumes, rotated certificates). */
export class CredentialFile {
  readonly path: string;
  readonly #what: string;
  #text: string | undefined;
  #mark = "";
  #checkedMs = Number.NEGATIVE_INFINITY;
  #readMs = Number.NEGATIVE_INFINITY;

  /** `what` names the content in messages, for example `the token file`. */
  constructor(path: string, what: string) {
    this.path = path;
    this.#what = what;
  }

  /**
   * The content now. Once it was read, a failure keeps what was last known: files are gone for a moment while they are replaced.
   * Rejects with {@link AccessError} before that.
   */
  async read(nowMs: number): Promise<string> {
    if (this.#text !== undefined && nowMs - this.#checkedMs < CHECK_EVERY_MS) return this.#text;
    try {
      const { mtimeMs, ino, size } = await stat(this.path);
      const mark = `${mtimeMs}/${ino}/${size}`;
      if (this.#text === undefined || mark !== this.#mark || nowMs - this.#readMs >= READ_EVERY_MS) {
        this.#text = await readFile(this.path, "utf8");
        this.#mark = mark;
        this.#readMs = nowMs;
      }
      this.#checkedMs = nowMs;
    } catch (error) {
      if (this.#text === undefined) throw fileError(error, this.path, this.#what);
    }
    return this.#text;
  }

  /** The next `read` reads the file whatever its age. */
  invalidate(): void {
    this.#mark = "";
    this.#checkedMs = Number.NEGATIVE_INFINITY;
  }
}

/** A file that can't be read, with what to do about it. */
export function fileError(error: unknown, path: string, what: string): AccessError {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (code === "ENOENT" || code === "ENOTDIR") {
    return new AccessError("missing", `${what} ${path} does not exist; check the path or mount the file`, {
      cause: error,
    });
  }
  const advice = code === "EACCES" ? "this process may not read it; check its owner and mode" : "check the file";
  return new AccessError("unreadable", `${what} ${path} cannot be read (${code}): ${advice}`, { cause: error });
}
