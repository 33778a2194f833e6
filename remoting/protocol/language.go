package protocol

// Languages of a peer.
const (
	LangJava byte = iota
	LangCPP
	LangDotnet
	LangPython
	LangDelphi
	LangErlang
	LangRuby
	LangOther
	LangHTTP
	LangGo
	LangPHP
	LangOMS
	LangRust
	LangNodeJS
)

var languages = [...]string{"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
	"OMS", "RUST", "NODE_JS"}

// LanguageName is the name of a language id; OTHER for an id that RocketMQ does not know.
func LanguageName(id byte) string {
	if int(id) < len(languages) {
		return languages[id]
	}
	return languages[LangOther]
}

// ParseLanguage is the id of a name, LangOther for an unknown one.
func ParseLanguage(name []byte) byte {
	if string(name) == "JAVA" {
		return LangJava
	}
	for i, n := range languages {
		if n == string(name) {
			return byte(i)
		}
	}
	return LangOther
}
