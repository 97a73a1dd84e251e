/** The files of the page. A build has them in its bundle; code that runs from source bundles them at its start. */
declare const PODSEIDON_DASHBOARD_SCRIPT: string | undefined;
declare const PODSEIDON_DASHBOARD_STYLE: string | undefined;

interface PageFile {
  readonly type: string;
  readonly text: string;
}

/** By path; "" is the page itself. */
export type PageFiles = Readonly<Record<string, PageFile>>;

const HTML = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>podseidon</title>
<link rel="icon" href="icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="page.css">
<script type="module" src="page.js"></script>
</head>
<body>
<div id="page"><noscript>This page needs JavaScript; kubectl podseidon status needs none.</noscript></div>
</body>
</html>
`;

const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<path d="M8 15V3M3 2v3a5 5 0 0 0 10 0V2M5 12h6" fill="none" stroke="#0969da" stroke-width="2"/></svg>
`;

export function pageFiles({ script, style }: { readonly script: string; readonly style: string }): PageFiles {
  return {
    "": { type: "text/html; charset=utf-8", text: HTML },
    "icon.svg": { type: "image/svg+xml", text: ICON },
    "page.js": { type: "text/javascript; charset=utf-8", text: script },
    "page.css": { type: "text/css; charset=utf-8", text: style },
  };
}

export async function loadPageFiles(): Promise<PageFiles> {
  if (typeof PODSEIDON_DASHBOARD_SCRIPT === "string" && typeof PODSEIDON_DASHBOARD_STYLE === "string")
    return pageFiles({ script: PODSEIDON_DASHBOARD_SCRIPT, style: PODSEIDON_DASHBOARD_STYLE });
  else return pageFiles(await (await import("./bundle-page.ts")).bundlePage());
}
