/** Archives that only depend on their files, not on time or machine. Pure. */
import { hash } from "node:crypto";
import { gzipSync } from "node:zlib";

export interface ArchivedFile {
  /** With slashes, relative. A name that ends with a slash is a folder. */
  readonly path: string;
  readonly bytes: Uint8Array;
  readonly executable?: boolean;
}

const BLOCK = 512;
/** The longest name of the old header, which every reader knows. */
const MAX_NAME = 100;
/** "Unknown" instead of the operating system (RFC 1952), which zlib writes at this position. */
const [GZIP_SYSTEM, UNKNOWN_SYSTEM] = [9, 255];

/** A ustar archive: files sorted by name, of user 0, with time 0. Throws for a name that is too long. */
export function tar(files: readonly ArchivedFile[]): Buffer {
  const sorted = [...files].sort((a, b) => (a.path < b.path ? -1 : 1));
  const blocks = sorted.flatMap(({ path, bytes, executable }) => {
    const padding = Buffer.alloc((BLOCK - (bytes.length % BLOCK)) % BLOCK);
    return [header(path, bytes.length, executable === true), bytes, padding];
  });
  return Buffer.concat([...blocks, Buffer.alloc(2 * BLOCK)]);
}

function header(path: string, size: number, executable: boolean): Buffer {
  if (Buffer.byteLength(path) > MAX_NAME) throw new Error(`${path} is too long a name for an archive`);
  const isFolder = path.endsWith("/");
  const block = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, length: number): void => {
    block.write(`${value.toString(8).padStart(length - 1, "0")}\0`, at);
  };
  block.write(path, 0);
  octal(isFolder || executable ? 0o755 : 0o644, 100, 8);
  octal(0, 108, 8);
  octal(0, 116, 8);
  octal(size, 124, 12);
  octal(0, 136, 12);
  block.write(" ".repeat(8), 148);
  block.write(isFolder ? "5" : "0", 156);
  block.write("ustar\0" + "00", 257);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return block;
}

export function gzip(bytes: Uint8Array): Buffer {
  const packed = gzipSync(bytes, { level: 9 });
  packed[GZIP_SYSTEM] = UNKNOWN_SYSTEM;
  return packed;
}

export function sha256(bytes: Uint8Array | string): string {
  return hash("sha256", bytes, "hex");
}
