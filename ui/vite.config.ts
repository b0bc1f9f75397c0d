import { defineConfig } from "vite";

// The files are embedded into the daemon and checked in: their names are stable, there is one script and one
// style sheet, and nothing in them depends on the time or the place of the build.
export default defineConfig({
  base: "./",
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    outDir: "../internal/api/ui/dist",
    emptyOutDir: true,
    sourcemap: false,
    target: "es2022",
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 700,
    rollupOptions: {
      output: {
        entryFileNames: "assets/app.js",
        assetFileNames: "assets/app[extname]",
        codeSplitting: false,
      },
    },
  },
});
