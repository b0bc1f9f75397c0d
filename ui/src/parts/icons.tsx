/** Line icons. They are drawn in the colour of the text, and always stand beside a text or a label. */
import type { ComponentChildren } from "preact";

function Icon({ children }: { children: ComponentChildren }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width="16" height="16" fill="none" stroke="currentColor" stroke-width="1.5"
      stroke-linecap="round" stroke-linejoin="round" aria-hidden="true" focusable="false">
      {children}
    </svg>
  );
}

export const Logo = () => (
  <svg class="logo" viewBox="0 0 24 24" width="22" height="22" fill="none" stroke="currentColor" stroke-width="2.2"
    stroke-linecap="round" aria-hidden="true" focusable="false">
    <circle cx="6" cy="5" r="2.4" />
    <circle cx="18" cy="9" r="2.4" />
    <circle cx="18" cy="19" r="2.4" />
    <path d="M6 8v5a6 6 0 0 0 6 6h3M6 9h9" />
  </svg>
);
export const Chevron = () => <Icon><path d="m6 4 4 4-4 4" /></Icon>;
export const Dots = () => <Icon><path d="M3.5 8h.01M8 8h.01M12.5 8h.01" stroke-width="2.4" /></Icon>;
export const Camera = () => <Icon><path d="M8 2 14 5 8 8 2 5zM2 8l6 3 6-3M2 11l6 3 6-3" /></Icon>;
export const Box = () => <Icon><rect x="2.5" y="3" width="11" height="10" rx="1.5" /><path d="m5 6.5 2 1.5-2 1.5M8.5 10H11" /></Icon>;
export const Stack = () => <Icon><rect x="2.5" y="5.5" width="11" height="8" rx="1.5" /><path d="M4 3.2h8" /></Icon>;
export const Cross = () => <Icon><path d="m4 4 8 8M12 4l-8 8" /></Icon>;
export const Folder = () => <Icon><path d="M2 12.5v-9h4l1.5 2H14v7z" /></Icon>;
export const Page = () => <Icon><path d="M4 2h5l3 3v9H4zM9 2v3h3" /></Icon>;
export const Down = () => <Icon><path d="M8 2.5v8M4.5 7.5 8 11l3.5-3.5M3 13.5h10" /></Icon>;
export const Up = () => <Icon><path d="M8 11V3M4.5 6 8 2.5 11.5 6M3 13.5h10" /></Icon>;
export const Search = () => <Icon><circle cx="7" cy="7" r="4.2" /><path d="m10.2 10.2 3.3 3.3" /></Icon>;
