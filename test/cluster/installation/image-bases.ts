/**
 * Substitutes for the base images of the Containerfile, for a machine without access to a registry: file systems made
 * of this machine's own files, in the shape of `node:24-trixie-slim` (a shell, Node.js and npm) and of distroless's
 * `nodejs24` (only Node.js).
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, realpathSync, symlinkSync, writeFileSync } from "node:fs";
import { delimiter, dirname, join } from "node:path";

/** The accounts of distroless. */
const ACCOUNTS = "root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n";
const GROUPS = "root:x:0:\nnonroot:x:65532:\n";
const AUTHORITIES = "/etc/ssl/certs/ca-certificates.crt";

/** Writes a build context for the image that builds the bundles. Throws when this machine has no npm. */
export function writeBuildBase(directory: string): void {
  const rootfs = baseOf(directory);
  addBinary(rootfs, process.execPath, "/usr/local/bin/node");
  addBinary(rootfs, realpathSync("/bin/sh"), "/bin/sh");
  addBinary(rootfs, realpathSync("/usr/bin/env"), "/usr/bin/env");
  const npm = realpathSync(onPath("npm"));
  cpSync(dirname(dirname(npm)), join(rootfs, "usr/local/lib/node_modules/npm"), { recursive: true, dereference: true });
  symlinkSync("../lib/node_modules/npm/bin/npm-cli.js", join(rootfs, "usr/local/bin/npm"));
  for (const folder of ["tmp", "root"]) mkdirSync(join(rootfs, folder));
  const environment = ["PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/root"];
  // The registry of this machine, and the authorities that it trusts.
  environment.push(
    `NPM_CONFIG_REGISTRY=${execFileSync(onPath("npm"), ["config", "get", "registry"], { encoding: "utf8" }).trim()}`,
  );
  if (existsSync(AUTHORITIES)) {
    mkdirSync(join(rootfs, dirname(AUTHORITIES)), { recursive: true });
    cpSync(AUTHORITIES, join(rootfs, AUTHORITIES), { dereference: true });
    environment.push(`NPM_CONFIG_CAFILE=${AUTHORITIES}`);
  }
  writeContainerfile(directory, environment);
}

/** Writes a build context for the image that runs the bundles. */
export function writeRunBase(directory: string): void {
  addBinary(baseOf(directory), process.execPath, "/nodejs/bin/node");
  writeContainerfile(
    directory,
    ["PATH=/usr/bin:/bin"],
    'ENTRYPOINT ["/nodejs/bin/node"]\nUSER 65532\nWORKDIR /home/nonroot\n',
  );
}

function baseOf(directory: string): string {
  const rootfs = join(directory, "rootfs");
  mkdirSync(join(rootfs, "etc"), { recursive: true });
  writeFileSync(join(rootfs, "etc/passwd"), ACCOUNTS);
  writeFileSync(join(rootfs, "etc/group"), GROUPS);
  return rootfs;
}

function writeContainerfile(directory: string, environment: readonly string[], more = ""): void {
  const variables = environment.map((one) => `ENV ${one}\n`).join("");
  writeFileSync(join(directory, "Containerfile"), `FROM scratch\nCOPY rootfs /\n${variables}${more}`);
}

/** Copies a binary and the shared libraries that its loader needs. */
function addBinary(rootfs: string, binary: string, at: string): void {
  copy(realpathSync(binary), join(rootfs, at));
  for (const [library] of execFileSync("ldd", [binary], { encoding: "utf8" }).matchAll(/(?<=\s)\/\S+/g))
    copy(realpathSync(library), join(rootfs, library));
}

function copy(from: string, to: string): void {
  mkdirSync(dirname(to), { recursive: true });
  cpSync(from, to);
}

function onPath(command: string): string {
  const found = (process.env.PATH ?? "")
    .split(delimiter)
    .map((directory) => join(directory, command))
    .find((path) => existsSync(path));
  if (found === undefined) throw new Error(`${command} is not on PATH`);
  return found;
}
