# bash completion for nnlua. lua/completion.lua says what to offer.
# shellcheck shell=bash

_nnlua() {
    local words=() word lines IFS=$'\n'
    # bash splits words at "=": a setting's name, "=" and value are separate words
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [ ${#words[@]} != 0 ] && { [ "$word" = = ] || [[ ${words[-1]} == *= ]]; }; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
    done
    local current=${words[-1]} name=''
    words=("$current" "${words[@]:0:${#words[@]}-1}")
    [[ $current != *=* ]] || name=${current%%=*}=
    mapfile -t lines < <(NNLUA_COMPLETE="${words[*]}" "${COMP_WORDS[0]}" -l completion 2>/dev/null)
    COMPREPLY=()
    for word in "${lines[@]:1}"; do
        word=${word%%$'\t'*}
        COMPREPLY+=("${word#"$name"}")
        [[ $word != *[=/] ]] || compopt -o nospace 2>/dev/null
    done
    case ${lines[0]-} in
    scripts)
        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -f -X '!*.lua' -- "$current"; compgen -d -S / -- "$current")
        mapfile -t COMPREPLY < <(printf '%s\n' "${COMPREPLY[@]}" | sed '/^$/d' | sort -u)
        compopt -o nospace 2>/dev/null
        ;;
    files) mapfile -t COMPREPLY < <(compgen -f -- "${current#"$name"}") ;;
    esac
}

complete -F _nnlua nnlua ./nnlua
