/** The heading of a view about one object. It gets the focus that the former view has lost, so that keys go on from here. */
import { useEffect, useRef } from "preact/hooks";

export function ObjectHeading({ name }: { name: string }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (document.activeElement === document.body) heading.current?.focus();
  }, []);
  return <h1 ref={heading} tabIndex={-1} class="id">{name}</h1>;
}
