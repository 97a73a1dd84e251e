/** An option's three names come from its key: `securePort`, `--secure-port`, `PODSEIDON_SECURE_PORT`. */

export function kebab(key: string): string {
  return key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
}

export function flagName(key: string): string {
  return `--${kebab(key)}`;
}

export function variableName(key: string): string {
  return `PODSEIDON_${kebab(key).replaceAll("-", "_").toUpperCase()}`;
}
