package arch

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"
)

// elapses begins the comment beside a sleep whose passing is what is tested.
const elapses = "// elapses: "

// A test waits for what it needs by looking again and again until a deadline. A
// sleep that only hopes for it is too long on one machine and too short on
// another. Sleeps are allowed in the body or header of a loop, for a minute or
// more (a stand-in for what hangs), and where time itself is the subject.
func TestNoTestSleepsInPlaceOfWaiting(t *testing.T) {
	found := 0
	err := filepath.WalkDir("../..", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		found++
		for _, at := range hopefulSleeps(t, path) {
			t.Errorf("%s: a sleep in place of waiting: poll with a deadline, or say beside it what has to elapse (%q)", at, elapses)
		}
		return nil
	})
	if err != nil || found < 100 {
		t.Fatalf("looked at %d test files: %v", found, err)
	}
}

// hopefulSleeps are the places of a file's sleeps that are not allowed.
func hopefulSleeps(t *testing.T, path string) (bad []token.Position) {
	t.Helper()
	files := token.NewFileSet()
	f, err := parser.ParseFile(files, path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	said := map[int]bool{} // lines with such a comment
	for _, group := range f.Comments {
		for _, c := range group.List {
			if strings.HasPrefix(c.Text, elapses) {
				said[files.Position(c.Pos()).Line] = true
			}
		}
	}
	var inside []ast.Node
	ast.Inspect(f, func(n ast.Node) bool {
		if n == nil {
			inside = inside[:len(inside)-1]
			return true
		}
		if call, ok := n.(*ast.CallExpr); ok && isSleep(call) && !inLoop(inside) && !isLong(call.Args[0]) {
			if at := files.Position(n.Pos()); !said[at.Line] {
				bad = append(bad, at)
			}
		}
		inside = append(inside, n)
		return true
	})
	return bad
}

func isSleep(call *ast.CallExpr) bool {
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && isIdent(f.X, "time") && f.Sel.Name == "Sleep"
}

// inLoop reports whether the innermost function has a loop around the node; a
// range over subtests is none, as each turn is another test.
func inLoop(inside []ast.Node) bool {
	for i := len(inside) - 1; i >= 0; i-- {
		switch inside[i].(type) {
		case *ast.ForStmt:
			return true
		case *ast.FuncLit, *ast.FuncDecl:
			return false
		}
	}
	return false
}

// isLong tells of time.Hour and time.Minute.
func isLong(arg ast.Expr) bool {
	s, ok := arg.(*ast.SelectorExpr)
	return ok && isIdent(s.X, "time") && (s.Sel.Name == "Hour" || s.Sel.Name == "Minute")
}
