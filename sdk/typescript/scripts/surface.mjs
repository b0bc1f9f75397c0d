// Prints the public surface of the package as JSON, for the comparison with the Python client: see
// sdk/python/scripts/surface.py for the form. It reads the built declarations with TypeScript's compiler. The fields of
// an options object count as the method's options. Types of the API (generated/models) are left out.
import { fileURLToPath } from "node:url";
import ts from "typescript";

const entry = fileURLToPath(new URL("../dist/index.d.ts", import.meta.url));
const program = ts.createProgram([entry], {
  target: ts.ScriptTarget.ES2022, module: ts.ModuleKind.NodeNext, moduleResolution: ts.ModuleResolutionKind.NodeNext,
  strict: true, skipLibCheck: true, types: ["node"], lib: ["lib.es2022.d.ts", "lib.dom.d.ts", "lib.esnext.disposable.d.ts"],
});
const checker = program.getTypeChecker();
const source = program.getSourceFile(entry);
if (!source) throw new Error(`${entry} is missing: run npm run build`);

const ours = (declaration) => !program.isSourceFileDefaultLibrary(declaration.getSourceFile())
  && !declaration.getSourceFile().fileName.includes("/node_modules/");
const internal = (declaration) => ts.getJSDocTags(declaration).some((t) => t.tagName.text === "internal");
const hidden = (declaration) => internal(declaration) || ts.getCombinedModifierFlags(declaration)
  & (ts.ModifierFlags.Private | ts.ModifierFlags.Protected | ts.ModifierFlags.Static);

/** Returns the fields of an options object, or undefined if the type is another value. */
function fields(type) {
  const parts = type.isUnion() ? type.types : [type];
  const names = new Set();
  for (const part of parts) {
    if (part.flags & (ts.TypeFlags.Undefined | ts.TypeFlags.Null)) continue;
    const properties = part.getProperties();
    const plain = part.flags & (ts.TypeFlags.Object | ts.TypeFlags.Intersection) && !part.getCallSignatures().length
      && !(part.symbol?.flags & ts.SymbolFlags.Class) && properties.length > 0
      && properties.every((p) => (p.declarations ?? []).every(ours));
    if (!plain) return undefined;
    for (const p of properties) if (!(p.declarations ?? []).some(internal)) names.add(p.name);
  }
  return [...names];
}

/** Describes the overloads of a method as one. */
function method(signatures, at) {
  const options = new Set();
  for (const signature of signatures) {
    for (const p of signature.getParameters()) {
      const of = fields(checker.getNonNullableType(checker.getTypeOfSymbolAtLocation(p, at)));
      for (const name of of ?? [p.name]) if (name !== "signal") options.add(name);
    }
  }
  return { kind: "method", options: [...options], open: false };
}

/** Returns the public members that a class or an interface declares, with those of its bases in this package. */
function members(symbol) {
  const out = {};
  const type = checker.getDeclaredTypeOfSymbol(symbol);
  for (const p of type.getProperties()) {
    const [declaration] = p.declarations ?? [];
    if (!declaration || !ours(declaration) || hidden(declaration) || p.name.startsWith("#")) continue;
    const symbolic = /^__@(asyncDispose|asyncIterator)@/.exec(p.name)?.[1];
    if (symbolic) out[symbolic === "asyncDispose" ? "dispose" : "iterate"] = { kind: "method" };
    if (p.name.startsWith("__@") || ts.isPrivateIdentifier(declaration.name)) continue;
    const owner = checker.getSymbolAtLocation(declaration.parent.name ?? declaration.parent);
    if (owner && owner !== symbol && isExported(owner)) continue; // a member of a public base
    const calls = checker.getTypeOfSymbolAtLocation(p, declaration).getCallSignatures();
    const isMethod = ts.isMethodDeclaration(declaration) || ts.isMethodSignature(declaration);
    out[p.name] = isMethod ? method(calls, declaration) : { kind: "property" };
  }
  if (isError(type)) delete out.name; // JavaScript's
  for (const d of symbol.declarations.filter(ts.isClassDeclaration)) {
    const made = d.members.filter((m) => ts.isConstructorDeclaration(m) && !hidden(m));
    if (made.length) out.constructor = method(made.map((m) => checker.getSignatureFromDeclaration(m)), d);
  }
  return out;
}

const isError = (type) => type.getProperties().some((p) => p.name === "stack");

const exported = checker.getExportsOfModule(checker.getSymbolAtLocation(source)).map((s) =>
  [s.name, s.flags & ts.SymbolFlags.Alias ? checker.getAliasedSymbol(s) : s]);
const isExported = (symbol) => exported.some(([, s]) => s === symbol);

const surface = { forkd: {} };
for (const [name, symbol] of exported) {
  const classLike = symbol.flags & (ts.SymbolFlags.Class | ts.SymbolFlags.Interface);
  if (classLike && !name.endsWith("Options")) surface[name] = members(symbol);
  else if (symbol.flags & ts.SymbolFlags.Function) surface.forkd[name] = { kind: "function" };
  else if (symbol.flags & ts.SymbolFlags.Variable) surface.forkd[name] = { kind: "property" };
}
process.stdout.write(JSON.stringify(surface, null, 1) + "\n");
