/** The view that the part of the address after # names. */
import { Store } from "./store";

export type Route =
  | { view: "tree" }
  | { view: "sandbox"; id: string; tab: string }
  | { view: "snapshot"; tag: string }
  | { view: "limits" }
  | { view: "compare"; a: string; b: string };

function parse(hash: string): Route {
  const [view = "", first = "", second = ""] = hash.replace(/^#\/?/, "").split("/").map(decode);
  if (view === "sandbox" && first) return { view, id: first, tab: second || "overview" };
  if (view === "snapshot" && first) return { view, tag: first };
  if (view === "limits") return { view };
  if (view === "compare") return { view, a: first, b: second };
  return { view: "tree" };
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

export const route = new Store<Route>(parse(location.hash));

addEventListener("hashchange", () => route.set(parse(location.hash)));

const e = encodeURIComponent;
export const toTree = "#/";
export const toLimits = "#/limits";
export const toSandbox = (id: string, tab = ""): string => `#/sandbox/${e(id)}${tab ? "/" + tab : ""}`;
export const toSnapshot = (tag: string): string => `#/snapshot/${e(tag)}`;
export const toCompare = (a = "", b = ""): string => `#/compare/${e(a)}/${e(b)}`;

export function go(to: string): void {
  location.hash = to;
}
