/** Commands in a text for people, which has to do the same when it is pasted into a shell. Pure. */

const PLAIN = /^[\w@%+=:,./-]+$/;

/** Flags with a value, each after a blank; those without a value are left out. */
export function flagsText(flags: Readonly<Record<string, string | readonly string[] | undefined>>): string {
  return Object.entries(flags)
    .flatMap(([name, value]) => [value ?? []].flat().map((one) => ` --${name} ${shellWord(one)}`))
    .join("");
}

/** The text as a word of a POSIX shell: in quotes where it has blanks or other special characters. */
export function shellWord(text: string): string {
  return PLAIN.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/**
 * The text, with these flags in its commands of the plugin, and of kubectl; `system` in those of the plugin that take
 * the system namespace, and `both` in place of `plugin` in those that need the core and a worker cluster by name.
 */
export function withFlags(text: string, plugin: string, kubectl: string, system = "", both = plugin): string {
  return text.replaceAll(
    /\bkubectl( podseidon(?=( join| leave)?( remove-cell| doctor)?))?(?= )/g,
    (word, own, takesBoth, takesSystem) => {
      if (own === undefined) return word + kubectl;
      return word + (takesBoth ? both : plugin) + (takesBoth || takesSystem ? system : "");
    },
  );
}
