/** Bundles the page for browsers. The build calls it, and the plugin when it runs from source. */
import { join } from "node:path";
import type { Metafile } from "esbuild";

export interface PageBundle {
  readonly script: string;
  readonly style: string;
  readonly metafile: Metafile;
}

export async function bundlePage(): Promise<PageBundle> {
  const { build } = await import("esbuild");
  const folder = join(import.meta.dirname, "page");
  const { outputFiles, metafile } = await build({
    absWorkingDir: join(import.meta.dirname, "../../.."),
    entryPoints: [
      { in: join(folder, "main.tsx"), out: "page" },
      { in: join(folder, "style.css"), out: "page" },
    ],
    outdir: "page",
    write: false,
    bundle: true,
    format: "esm",
    platform: "browser",
    target: ["chrome120", "firefox121", "safari17.4"],
    tsconfig: join(folder, "tsconfig.json"),
    minify: true,
    metafile: true,
    legalComments: "none",
    logLevel: "error",
  });
  const textOf = (ending: string): string => outputFiles.find(({ path }) => path.endsWith(ending))?.text ?? "";
  return { script: textOf(".js"), style: textOf(".css"), metafile };
}
