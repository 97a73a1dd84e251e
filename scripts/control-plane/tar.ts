/** Reads one file out of an uncompressed tar archive (POSIX ustar). */

const BLOCK_BYTES = 512;

/** The content of `path` in `archive`; throws when it is not there. */
export function extractFile(archive: Buffer, path: string): Buffer {
  for (let offset = 0; offset + BLOCK_BYTES <= archive.length; ) {
    const header = archive.subarray(offset, offset + BLOCK_BYTES);
    const name = text(header, 0, 100);
    if (name === "") break;
    const prefix = text(header, 345, 155);
    const sizeBytes = Number.parseInt(text(header, 124, 12), 8);
    if (!Number.isInteger(sizeBytes)) throw new Error(`the archive is damaged at byte ${offset}`);
    const start = offset + BLOCK_BYTES;
    if ((prefix === "" ? name : `${prefix}/${name}`) === path) return archive.subarray(start, start + sizeBytes);
    offset = start + Math.ceil(sizeBytes / BLOCK_BYTES) * BLOCK_BYTES;
  }
  throw new Error(`the archive has no ${path}`);
}

function text(header: Buffer, offset: number, length: number): string {
  const field = header.subarray(offset, offset + length);
  const end = field.indexOf(0);
  return field.toString("utf8", 0, end < 0 ? length : end).trim();
}
