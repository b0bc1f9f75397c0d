/** Symbols of `using`, which Node before 18.18 lacks. Import this module before a class that has them. */
function define(name: "dispose" | "asyncDispose"): void {
  if (!(Symbol as unknown as Record<string, symbol | undefined>)[name]) {
    Object.defineProperty(Symbol, name, { value: Symbol.for(`Symbol.${name}`) });
  }
}
define("dispose");
define("asyncDispose");
