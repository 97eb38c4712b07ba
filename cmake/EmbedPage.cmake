# Writes OUTPUT: the text of PAGE as a string constant SYMBOL of namespace paceline::ROOM. A line "/* @include FILE */"
# stands for the text of FILE beside the page, so that the page reaches its reader as one file. A raw string literal may
# hold 64 KiB by the standard, so the text is cut into adjacent pieces.
file(READ ${PAGE} text)
get_filename_component(folder ${PAGE} DIRECTORY)
string(REGEX MATCHALL "/\\* @include [a-z_]+\\.[a-z]+ \\*/" includes "${text}")
foreach(include IN LISTS includes)
  string(REGEX REPLACE "/\\* @include (.*) \\*/" "\\1" name "${include}")
  file(READ ${folder}/${name} included)
  string(REPLACE "${include}" "${included}" text "${text}")
endforeach()
string(LENGTH "${text}" length)
set(pieces "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${text}" ${at} 8000 piece)
  string(APPEND pieces "R\"~page~(${piece})~page~\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUTPUT}
     "#include \"paceline/${ROOM}/pages.h\"\n\nnamespace paceline::${ROOM} {\nconst std::string_view ${SYMBOL} =\n${pieces};\n}\n")
