/** The text as a person types it in a POSIX shell: in quotes where it has blanks or other special characters. */
export function shellWord(text: string): string {
  return /^[\w%+,./:=@-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
