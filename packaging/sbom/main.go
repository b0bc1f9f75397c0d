// sbom completes a CycloneDX document of cyclonedx-gomod: it keeps the modules that programs were built
// from, and replaces what changes from run to run. It reads the document from standard input.
//
//	sbom --version 0.1.0 PROGRAM... <module.cdx.json >forkd.cdx.json
package main

import (
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	version := flag.String("version", "", "the version of the programs")
	flag.Parse()
	if err := run(*version, flag.Args(), os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(version string, programs []string, in io.Reader, out io.Writer) error {
	n, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	if err != nil {
		return fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	if version == "" || len(programs) == 0 {
		return errors.New("usage: sbom --version VERSION PROGRAM [PROGRAM ...]")
	}
	modules := map[string]bool{}
	for _, program := range programs {
		info, err := buildinfo.ReadFile(program)
		if err != nil {
			return err
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			modules[m.Path+"@"+m.Version] = true
		}
	}
	var doc map[string]any
	if err := json.NewDecoder(in).Decode(&doc); err != nil {
		return err
	}
	if err := complete(doc, version, modules, time.Unix(n, 0).UTC()); err != nil {
		return err
	}
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(doc)
}

// complete changes the document. It is an error if a module of the programs is not in it.
func complete(doc map[string]any, version string, modules map[string]bool, date time.Time) error {
	meta, _ := doc["metadata"].(map[string]any)
	main, _ := meta["component"].(map[string]any)
	if main == nil {
		return errors.New("the document has no main component")
	}
	old, _ := main["bom-ref"].(string)
	delete(doc, "serialNumber")
	meta["timestamp"] = date.Format(time.RFC3339)
	tools, _ := meta["tools"].([]any)
	for _, tool := range tools {
		if t, _ := tool.(map[string]any); t != nil {
			delete(t, "hashes") // of the tool's program, which was built here
		}
	}
	name, _ := main["name"].(string)
	ref := "pkg:golang/" + name + "@v" + version
	main["version"], main["bom-ref"], main["purl"] = "v"+version, ref, ref+"?type=module"

	refs := map[string]bool{old: true}
	components, _ := doc["components"].([]any)
	components = slices.DeleteFunc(components, func(c any) bool {
		m, _ := c.(map[string]any)
		module := fmt.Sprint(m["name"], "@", m["version"])
		if m["name"] != "std" && !modules[module] {
			return true
		}
		delete(modules, module)
		if m["scope"] != nil {
			m["scope"] = "required" // the tool calls it optional if a test is on its way to the module
		}
		r, _ := m["bom-ref"].(string)
		refs[r] = true
		return false
	})
	if len(modules) > 0 {
		missing := make([]string, 0, len(modules))
		for m := range modules {
			missing = append(missing, m)
		}
		slices.Sort(missing)
		return fmt.Errorf("modules of the programs are not in the document: %s", strings.Join(missing, ", "))
	}
	doc["components"] = components

	dependencies, _ := doc["dependencies"].([]any)
	dependencies = slices.DeleteFunc(dependencies, func(d any) bool {
		m, _ := d.(map[string]any)
		from, _ := m["ref"].(string)
		if !refs[from] {
			return true
		}
		if from == old {
			m["ref"] = ref
		}
		on, _ := m["dependsOn"].([]any)
		on = slices.DeleteFunc(on, func(r any) bool { s, _ := r.(string); return !refs[s] })
		if m["dependsOn"] = on; len(on) == 0 {
			delete(m, "dependsOn")
		}
		return false
	})
	doc["dependencies"] = dependencies
	return nil
}
