package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// source is one parsed file.
type source struct {
	pkg  pkg
	name string
	fset *token.FileSet
	file *ast.File
}

// sources parses every file that is not generated and not a test.
func sources(t *testing.T) []source {
	t.Helper()
	var all []source
	for _, p := range packages(t) {
		for _, name := range p.GoFiles {
			fset := token.NewFileSet()
			f, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if !ast.IsGenerated(f) {
				all = append(all, source{p, name, fset, f})
			}
		}
	}
	return all
}

// shortestDoc tells a comment that says something from one that repeats the name.
const shortestDoc = 120

func TestEveryPackageSaysWhatItIs(t *testing.T) {
	docs := map[string][]string{}
	seen := map[string]bool{}
	for _, s := range sources(t) {
		seen[s.pkg.name()] = true
		if s.file.Doc != nil {
			docs[s.pkg.name()] = append(docs[s.pkg.name()], s.file.Doc.Text())
		}
	}
	for name := range seen {
		switch d := docs[name]; {
		case len(d) == 0:
			t.Errorf("%s has no package comment: what it owns, what it does not, who may call it, the one trap", name)
		case len(d) > 1:
			t.Errorf("%s has its package comment in %d files; readers look in one", name, len(d))
		case len(d[0]) < shortestDoc:
			t.Errorf("%s: the package comment says too little: %q", name, d[0])
		}
	}
}

func TestUnsafeStandsInItsOwnFiles(t *testing.T) {
	for _, s := range sources(t) {
		marked := strings.HasSuffix(s.name, "_unsafe.go")
		for _, imp := range s.file.Imports {
			if imp.Path.Value == `"unsafe"` && !marked {
				t.Errorf("%s/%s imports unsafe; only *_unsafe.go may", s.pkg.name(), s.name)
			}
		}
		for _, d := range s.file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || !dangerous(fn) {
				continue
			}
			if !marked {
				t.Errorf("%s/%s: %s makes a raw system call; only *_unsafe.go may", s.pkg.name(), s.name, fn.Name.Name)
			}
			if !explained(s, fn) {
				t.Errorf("%s/%s: %s has no // SAFETY: line", s.pkg.name(), s.name, fn.Name.Name)
			}
		}
	}
}

// dangerous reports whether a function uses unsafe for more than a size, or
// passes pointers to the kernel.
func dangerous(fn *ast.FuncDecl) bool {
	found := false
	ast.Inspect(fn, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		x, ok := sel.X.(*ast.Ident)
		if !ok {
			return true
		}
		switch {
		case x.Name == "unsafe" && sel.Sel.Name != "Sizeof" && sel.Sel.Name != "Offsetof":
			found = true
		case (x.Name == "unix" || x.Name == "syscall") && (strings.HasPrefix(sel.Sel.Name, "Syscall") || strings.HasPrefix(sel.Sel.Name, "RawSyscall")):
			found = true
		}
		return true
	})
	return found
}

func explained(s source, fn *ast.FuncDecl) bool {
	start := fn.Pos()
	if fn.Doc != nil {
		start = fn.Doc.Pos()
	}
	for _, c := range s.file.Comments {
		if c.Pos() >= start && c.End() <= fn.End() && strings.Contains(c.Text(), "SAFETY:") {
			return true
		}
	}
	return false
}

// Pictures of limits that the house style sets: a file is split before this.
const longestFile = 700

func TestFilesAreSplitBeforeTheyGetLong(t *testing.T) {
	for _, s := range sources(t) {
		if n := s.fset.File(s.file.Pos()).LineCount(); n > longestFile {
			t.Errorf("%s/%s has %d lines", s.pkg.name(), s.name, n)
		}
	}
}
