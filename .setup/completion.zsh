#compdef nnlua
# zsh completion for nnlua. lua/completion.lua says what to offer.

_nnlua() {
    local line word
    local -a asked lines words_with_space words_without
    asked=("${(Q)PREFIX}" "${(@Q)words[2,CURRENT-1]}")
    lines=("${(@f)$(NNLUA_COMPLETE="${(F)asked}" ${(Q)words[1]/#\~/$HOME} -l completion 2>/dev/null)}")
    for line in "${(@)lines[2,-1]}"; do
        word=${line%%$'\t'*}
        word=${word//:/\\:}:${line#*$'\t'}
        case ${line%%$'\t'*} in
        *[=/]) words_without+=("$word") ;;
        ?*) words_with_space+=("$word") ;;
        esac
    done
    (( $#words_with_space )) && _describe nnlua words_with_space
    (( $#words_without )) && _describe nnlua words_without -S ''
    case $lines[1] in
    scripts) _files -g '*.lua' ;;
    files)
        compset -P '*='
        _files
        ;;
    esac
}

_nnlua "$@"
