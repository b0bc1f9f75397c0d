package arch

import (
	"encoding/json"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// wide are the interfaces and structs with more than mostMethods methods in their method sets, each with its
// number of methods today and the reason. The number may fall, but not grow.
var wide = map[string]struct {
	methods int
	reason  string
}{
	"internal/engine.Engine":                 {90, "the facade: it embeds its rooms, and its callers take roles (package roles), not the type"},
	"cmd/forkd.app":                          {54, "what all commands share: it prints, connects and completes; commands hold it in a field"},
	"cmd/forkd-bench.app":                    {49, "what all benchmarks share: it prints and connects"},
	"internal/testing/fakecluster.lives":     {59, "a fake changes one method of a whole engine"},
	"client.Client":                          {82, "the whole API as one public type: groups of methods would break every program that uses it"},
	"internal/api/httpapi/fakeengine.Flat":   {51, "tests replace one method of a whole engine"},
	"internal/api/httpapi/fakeengine.Engine": {71, "a fake of the whole engine over one state"},
	"internal/api/e2bapi/e2btest.Engine":     {67, "a fake of the whole engine over one state"},
}

// A caller of a wide type depends on all of it, also where embedding makes it wide.
func TestMethodSetsAreSmall(t *testing.T) {
	sets := methodSets(t)
	for _, of := range slices.Sorted(maps.Keys(sets)) {
		most, n := mostMethods, sets[of]
		if w, ok := wide[of]; ok {
			most = w.methods
		}
		if n > most {
			t.Errorf("the method set of %s has %d methods, want at most %d: split it by the needs of its callers", of, n, most)
		}
	}
	for of, w := range wide {
		if n, ok := sets[of]; !ok || n <= mostMethods {
			t.Errorf("%s has %d methods and needs no exception (%s)", of, n, w.reason)
		}
	}
}

// The count includes methods of embedded types and of embedded interfaces, also through pointers.
func TestMethodSetsCountEmbeddedTypes(t *testing.T) {
	const code = `package p
type inner struct{}
func (inner) A() {}
func (*inner) b() {}
type Outer struct{ *inner }
func (Outer) C() {}
type Named struct{ in inner }
type Reader interface{ Read() }
type Both interface{ Reader; Write() }
type hidden struct{ inner }`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "p.go", code, 0)
	if err != nil {
		t.Fatal(err)
	}
	p, err := new(types.Config).Check("p", fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	want := map[string]int{"p.Outer": 3, "p.Named": 0, "p.Reader": 1, "p.Both": 2, "p.inner": 2, "p.hidden": 2}
	addMethodSets(got, p)
	if !maps.Equal(got, want) {
		t.Errorf("counted %v, want %v", got, want)
	}
}

// methodSets counts the methods of each interface and struct of the module.
func methodSets(t *testing.T) map[string]int {
	t.Helper()
	fset := token.NewFileSet()
	own, imports := typedPackages(t, fset)
	sets := map[string]int{}
	for _, p := range own {
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		c := types.Config{Importer: imports, IgnoreFuncBodies: true, FakeImportC: true}
		checked, err := c.Check(p.ImportPath, fset, files, nil)
		if err != nil {
			t.Fatal(err)
		}
		addMethodSets(sets, checked)
	}
	return sets
}

// typedPackages returns the module's packages, and an importer that reads the compiler's types of their imports.
func typedPackages(t *testing.T, fset *token.FileSet) (own []pkg, imports types.Importer) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Dir,GoFiles,Export,DepOnly", module+"...")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	compiled := map[string]string{}
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p struct {
			pkg
			Export  string
			DepOnly bool
		}
		if err := dec.Decode(&p); err != nil {
			t.Fatal(err)
		}
		compiled[p.ImportPath] = p.Export
		if !p.DepOnly && len(p.GoFiles) > 0 {
			own = append(own, p.pkg)
		}
	}
	open := func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) }
	return own, importer.ForCompiler(fset, "gc", open)
}

// addMethodSets counts the methods that code of the package may call on each of its interfaces and structs.
func addMethodSets(sets map[string]int, p *types.Package) {
	for _, name := range p.Scope().Names() {
		of, ok := p.Scope().Lookup(name).(*types.TypeName)
		if !ok || of.IsAlias() {
			continue
		}
		var set *types.MethodSet
		switch of.Type().Underlying().(type) {
		case *types.Interface:
			set = types.NewMethodSet(of.Type())
		case *types.Struct:
			set = types.NewMethodSet(types.NewPointer(of.Type()))
		default:
			continue
		}
		n := 0
		for m := range set.Methods() {
			if m.Obj().Exported() || m.Obj().Pkg() == p {
				n++
			}
		}
		sets[short(p.Path())+"."+name] = n
	}
}
