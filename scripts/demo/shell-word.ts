/** The text as a word of a POSIX shell: in quotes where it has blanks or other special characters. */
export function shellWord(text: string): string {
  return /^[\w%+,./:=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
