"""Tables, pictures and HTML of results. Nothing is computed here; matplotlib is imported late.

A module shows results of one kind and has the name of the one in `wsfast.results` that holds them;
`wsfast.results.shown` has the functions that a result calls there:

==================  =======================  ==========  =============
module              shows                    as HTML     as a picture
==================  =======================  ==========  =============
sensitivity         SensitivityResult        words       bars
scores              text.Scores              words       bars
substitution        SubstitutionResult       tables      heat map
replacements        Replacements             tables      heat map
layers              LayerSensitivityResult   words       heat map
comparison          Comparison               maps        heat maps
scaling             ScalingResult            no          laws
generalization      GeneralizationResult     no          no
==================  =======================  ==========  =============

All of them write text. The others are their tools: `view` and `shade` prepare words and S_i;
`table`, `digits` and `scope` write lines; `html`, `plot`, `heat_map` and `fonts` serve pages and
pictures; `export` writes CSV and JSON.
"""
